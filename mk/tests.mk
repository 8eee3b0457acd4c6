# Unit tests: each tests/unit/<layer>/test_*.c is one cmocka program.
UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c))
UNIT_BIN := $(UNIT_SRC:%.c=$(BUILD)/%)

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $^ $(LDLIBS_ALL) -lcmocka -o $@
.PRECIOUS: $(BUILD)/tests/%.o

#: make check-unit the unit tests of every layer
.PHONY: check-unit
check-unit: $(UNIT_BIN)
	@tests/run.sh $(UNIT_BIN)

-include $(UNIT_SRC:%.c=$(BUILD)/%.d)
