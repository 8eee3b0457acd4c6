# Installing and packing. DESTDIR is put in front of every path, for packages.
DATADIR := $(PREFIX)/share
# install's pairs FILE:FOLDER; uninstall removes the same.
INSTALLED := $(if $(CUDA_BUILT),$(PLUGIN):$(PREFIX)/lib/lily) $(BUILD)/lily:$(PREFIX)/bin $(BUILD)/liblily.a:$(PREFIX)/lib $(BUILD)/lily.pc:$(PREFIX)/lib/pkgconfig \
  $(foreach f,$(sort $(wildcard include/lily/*.h)),$f:$(PREFIX)/include/lily) \
  $(foreach f,$(sort $(wildcard docs/lily.1)),$f:$(DATADIR)/man/man1) \
  $(foreach f,$(wildcard tools/completion/lily.bash),$f:$(DATADIR)/bash-completion/completions:lily) \
  $(foreach f,$(wildcard tools/completion/_lily),$f:$(DATADIR)/zsh/site-functions) \
  $(foreach f,$(sort $(wildcard models/demo/*)),$f:$(DATADIR)/lily/demo)
part = $(word $2,$(subst :, ,$1))
target_of = $(DESTDIR)$(call part,$1,2)/$(or $(call part,$1,3),$(notdir $(call part,$1,1)))

# There is no shared library, so every program that uses lily links all of this, with and without --static.
$(BUILD)/lily.pc: VERSION Makefile mk/install.mk $(FLAGS_STAMP) FORCE
	@{ echo 'prefix=$(PREFIX)'; echo 'Name: lily'; echo 'Description: inference engine for the Qwen3.6-35B-A3B family'; \
	  echo 'Version: $(VERSION)'; echo 'Requires: $(PACKAGES)'; \
	  echo 'Cflags: -I$${prefix}/include'; echo 'Libs: -L$${prefix}/lib -llily -lm -pthread'; } >$@
FORCE:
#: make install        to $(DESTDIR)$(PREFIX); make uninstall removes the same files
.PHONY: install uninstall dist FORCE
install: $(if $(CUDA_BUILT),$(PLUGIN)) $(BUILD)/lily $(BUILD)/liblily.a $(BUILD)/lily.pc
	@$(foreach f,$(INSTALLED),install -D -m $(if $(filter %/lily,$(call part,$f,1)),755,644) $(call part,$f,1) $(call target_of,$f) &&) \
	  echo "lily $(VERSION) is installed in $(DESTDIR)$(PREFIX)"
uninstall:
	rm -f $(foreach f,$(INSTALLED),$(call target_of,$f))
	-@rmdir $(DESTDIR)$(PREFIX)/include/lily $(DESTDIR)$(PREFIX)/lib/lily $(DESTDIR)$(DATADIR)/lily/demo $(DESTDIR)$(DATADIR)/lily 2>/dev/null || true

#: make dist           lily-VERSION.tar.gz of the committed tree; the same bytes every time
dist:
	git -c tar.umask=0022 archive --format=tar --prefix=lily-$(VERSION)/ HEAD | gzip -9n >lily-$(VERSION).tar.gz
