# Objects, the library, the program.
LIB_SRC := $(filter-out $(FOREIGN),$(sort $(wildcard src/*/*.c src/*/*/*.c)))
CMD_SRC := $(sort $(wildcard cmd/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
CMD_OBJ := $(CMD_SRC:%.c=$(BUILD)/%.o)
CMD_LIBS := $(if $(wildcard /usr/include/histedit.h),-ledit)

# A change of flags rebuilds everything.
FLAGS_STAMP := $(BUILD)/flags.txt
FLAGS_NOW := $(CC) $(CFLAGS_ALL)
$(shell mkdir -p $(BUILD); echo '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $(FLAGS_STAMP) || echo '$(subst ','\'',$(FLAGS_NOW))' > $(FLAGS_STAMP))

$(BUILD)/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa_of,$<) -MMD -MP -c $< -o $@

$(BUILD)/liblily.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/lily: $(CMD_OBJ) $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $^ $(LDLIBS_ALL) $(CMD_LIBS) -o $@

#: make            the program ./lily and the library liblily.a
.PHONY: lily liblily.a
lily: $(BUILD)/lily
	@cp -f $< $@.tmp && mv -f $@.tmp $@
liblily.a: $(BUILD)/liblily.a
	@cp -f $< $@.tmp && mv -f $@.tmp $@

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d)
