# Objects, the library, the program.
LIB_SRC := $(filter-out $(FOREIGN),$(sort $(wildcard src/*/*.c src/*/*/*.c)))
ifneq ($(STATIC),)
LIB_SRC := tests/static/hash.c $(filter-out src/text/% src/chat/% src/serve/% src/base/hash.c src/json/python_str.c,$(LIB_SRC))
endif
CMD_SRC := $(sort $(wildcard cmd/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
CMD_OBJ := $(CMD_SRC:%.c=$(BUILD)/%.o)
# Optional ones. A sysroot's libcurl would want the libraries behind it, too, so cross builds go without.
CMD_LIBS := $(if $(wildcard $(SYSROOT)/usr/include/histedit.h),-ledit) $(if $(CROSS),,$(shell pkg-config --libs libcurl 2>/dev/null))

# A change of flags rebuilds everything.
FLAGS_STAMP := $(BUILD)/flags.txt
FLAGS_NOW := '$(subst ','\'',$(CC) $(CFLAGS_ALL))'
$(shell mkdir -p $(BUILD); echo $(FLAGS_NOW) | cmp -s - $(FLAGS_STAMP) || echo $(FLAGS_NOW) >$(FLAGS_STAMP))

# The page: its files and two packaged scripts, as bytes. Without both scripts the page shows answers as plain text.
WEB_FILES := $(sort $(wildcard src/serve/web/*))
JS_DIR ?= /usr/share
MARKED := $(firstword $(wildcard $(JS_DIR)/javascript/marked/marked.umd.min.js $(JS_DIR)/javascript/marked/marked.min.js))
PURIFY := $(wildcard $(JS_DIR)/nodejs/dompurify/dist/purify.min.js)
MARKDOWN := $(if $(and $(MARKED),$(PURIFY)),$(MARKED)=marked.js $(PURIFY)=purify.js,=marked.js =purify.js)
LIB_OBJ += $(BUILD)/web_files.o
WEB_STAMP := $(BUILD)/web.txt
$(shell echo '$(WEB_FILES) $(MARKDOWN)' | cmp -s - $(WEB_STAMP) || echo '$(WEB_FILES) $(MARKDOWN)' >$(WEB_STAMP))
$(BUILD)/web_files.c: mk/embed.sh $(WEB_FILES) $(WEB_STAMP)
	$(if $(filter =marked.js,$(MARKDOWN)),@echo 'note: without libjs-marked and node-dompurify the page will show answers as plain text')
	$(Q)mk/embed.sh $(WEB_FILES) $(MARKDOWN) >$@.tmp && mv $@.tmp $@
$(BUILD)/web_files.o: $(BUILD)/web_files.c src/serve/web.h $(FLAGS_STAMP)
	$(Q)$(CC) $(CFLAGS_ALL) -c $< -o $@

$(BUILD)/%.o: %.c $(FLAGS_STAMP) mk/config.mk
	@mkdir -p $(@D)$(if $(V)$(SAID),,$(eval SAID := 1)$(info building in $(BUILD)$(if $(wildcard $(BUILD)/liblily.a),,$(comma) which takes minutes the first time); V=1 shows the commands))
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa_of,$<) -MMD -MP -c $< -o $@

# The folders are prerequisites so that a deleted source leaves the archive, too.
$(BUILD)/liblily.a: $(LIB_OBJ) $(sort $(dir $(LIB_SRC)))
	@rm -f $@
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

$(BUILD)/lily: $(CMD_OBJ) $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $^ $(LDLIBS_ALL) $(CMD_LIBS) -o $@

#: make                the program ./lily and the library liblily.a
.PHONY: lily liblily.a
lily liblily.a: %: $(BUILD)/%
	@cmp -s $< $@ || { cp -f $< $@.tmp && mv -f $@.tmp $@; }
