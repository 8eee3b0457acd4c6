# Tests. A program is found by its place and name: tests/unit/<layer>/test_*.c, tests/{golden,state,api,soak}/test_*.c and
# tests/fault/fault_*.c are cmocka programs, one each; tests/kernels/*.c are one program; tests/fuzz/fuzz_*.c are libFuzzer
# targets, replayed over their corpus in every check; other .c files in these folders are helpers, linked where used.
# tests/{cli,api,soak}/*.sh are scripts. Each prints a closing line, "N passed, N failed, N skipped"; tests/run.sh sums.
TEST_C := $(sort $(wildcard $(addprefix tests/,unit/*/*.c golden/*.c state/*.c api/*.c soak/*.c fault/*.c support/*.c)))
TEST_SRC := $(foreach f,$(TEST_C),$(if $(filter test_% fault_%,$(notdir $f)),$f))
HELP_SRC := $(if $(STATIC),tests/support/golden.c,$(filter-out $(TEST_SRC),$(TEST_C)))
CMOCKA := $(if $(STATIC),,-lcmocka)
KERNEL_SRC := $(filter-out $(FOREIGN),$(sort $(wildcard tests/kernels/*.c)))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
TEST_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
FUZZ_BIN := $(FUZZ_SRC:%.c=$(BUILD)/%)
KERNELS := $(if $(KERNEL_SRC),$(BUILD)/tests/kernels/check_kernels)
REPLAY := $(BUILD)/tests/fuzz/replay.o
to_obj = $(1:%.c=$(BUILD)/%.o)
$(BUILD)/tests/%.o: CFLAGS_ALL += -Itests $(if $(STATIC),-Itests/static -DTEST_QUICK) $(if $(CROSS),-DTEST_EMULATED)

$(BUILD)/tests/libhelp.a: $(call to_obj,$(HELP_SRC)) $(sort $(dir $(HELP_SRC)))
	@rm -f $@; mkdir -p $(@D)
	$(Q)$(AR) rcs $@ $(filter %.o,$^)
$(TEST_BIN): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/tests/libhelp.a $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $(WRAP) $^ $(LDLIBS_ALL) $(CMOCKA) -o $@
# The published tokenizer, unpacked for the tests.
TOKENIZER_JSON := $(BUILD)/tests/tokenizer/tokenizer.json
$(TOKENIZER_JSON): tests/data/tokenizer/Qwen3.6-35B-A3B-4bit.tokenizer.json.xz
	@mkdir -p $(@D); xz -dc $< >$@
$(filter $(BUILD)/tests/unit/text/% $(BUILD)/tests/unit/chat/%,$(TEST_BIN)): | $(TOKENIZER_JSON)
# Fault programs fail or watch these calls of the library (tests/fault/inject.h).
WRAPPED := mem_new mem_resize mem_dup mem_try mem_try_resize mmap open read write fsync rename mkostemp pthread_create
$(filter $(BUILD)/tests/fault/%,$(TEST_BIN)): WRAP := $(WRAPPED:%=-Wl,--wrap=%)
$(KERNELS): $(call to_obj,$(KERNEL_SRC)) $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $^ $(LDLIBS_ALL) -o $@
$(FUZZ_BIN): $(BUILD)/%: $(BUILD)/%.o $(if $(findstring fuzzer,$(SAN)),,$(REPLAY)) $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $(if $(findstring fuzzer,$(SAN)),-fsanitize=fuzzer) $^ $(LDLIBS_ALL) -o $@
.PRECIOUS: $(BUILD)/tests/%.o

scripts = $(sort $(wildcard $(foreach d,$1,tests/$d/*.sh tests/$d/test_*.py)))
bins = $(foreach d,$1,$(filter $(BUILD)/tests/$d/%,$(TEST_BIN)))
# T=word keeps the programs whose path has it, and PART those of a folder; then no count is asked for.
some = $(foreach p,$1,$(if $(and $(findstring $(or $(T),/),$p),$(findstring $(or $(PART),/),$p)),$p))
RUN = @BUILD=$(BUILD) LILY=$(BUILD)/lily CC="$(CC)" MODE=$(MODE) SAN=$(SAN) CFLAGS_ALL=$(call shell_word,$(CFLAGS_ALL)) tests/run.sh $(if $(T)$(PART),,-s $1)

# What takes long comes first: short ones fill what is left at the end.
CHECK := $(call some,$(wildcard tests/skills/skills.py) tests/neon.sh tests/avx512.sh $(call scripts,api cli) tests/install.sh \
  tests/headers.sh $(KERNELS) $(call bins,fault state golden api unit) $(FUZZ_BIN) tests/layers.sh)
SAN_CHECK := $(call some,$(call bins,fault golden unit) $(FUZZ_BIN))
TSAN_CHECK := $(call some,$(call scripts,api) $(filter-out %/test_demo_ids %/test_memory,$(call bins,state api) $(BUILD)/tests/unit/text/test_edges $(call bins,unit/backend unit/run unit/serve unit/load unit/base)))
SOAK := $(call some,$(call bins,soak) $(call scripts,soak))

#: make check          every suite once: unit, layers, headers, kernels, golden, state, fault, api, cli, skills
check: $(BUILD)/lily $(BUILD)/liblily.a $(filter $(BUILD)/%,$(CHECK))
	$(call RUN,check) $(CHECK)
#: make check-PART     one of unit, kernels, golden, state, fault, fuzz, api, cli, skills
PARTS := $(addprefix check-,unit kernels golden state fault fuzz api cli skills)
$(PARTS): check-%:; @$(MAKE) check PART=tests/$*/
#: make bench          speed of the 35B model with random weights (BENCH: other options of lily bench); 22 GB, some minutes
BENCH ?= --synthetic 35b --lengths 128,512 -v --peers bench/peers.json
bench: $(BUILD)/lily; $(BUILD)/lily bench $(BENCH)
#: make bench-kernels  speed of the kernels of every tier
bench-kernels: $(KERNELS)
	$(if $(KERNELS),$(KERNELS) --bench)
#: make bench-tokenizer speed of the tokenizer: loading, encoding, decoding (BENCH_TEXT: more files)
bench-tokenizer: $(BUILD)/tests/bench/bench_tokenizer $(TOKENIZER_JSON)
	@tests/bench/tokenizer.sh $^ $(BENCH_TEXT)
$(addprefix $(BUILD)/tests/bench/,bench_tokenizer serve_load): %: %.o $(BUILD)/liblily.a
	$(Q)$(CC) $(CFLAGS_ALL) $^ $(LDLIBS_ALL) -o $@

#: make check-san      unit, golden and fault suites under AddressSanitizer and UBSan, then each fuzzer for 15 s
check-san:
	@tests/sum.sh "$(MAKE) SAN=address,undefined suite-san" "$(MAKE) fuzz FUZZ_SECONDS=$(or $(SAN_FUZZ),15)"
suite-san: $(BUILD)/lily $(filter $(BUILD)/%,$(SAN_CHECK))
	$(call RUN,check-san) $(SAN_CHECK)
#: make check-san-api  the server's suites under the same sanitizers
check-san-api:; @$(MAKE) SAN=address,undefined suite-san-api
suite-san-api: $(BUILD)/lily; $(call RUN,san-api) $(call some,$(call scripts,api))
#: make tsan           the suites that use threads under ThreadSanitizer
tsan:; @$(MAKE) SAN=thread suite-tsan
suite-tsan: $(BUILD)/lily $(filter $(BUILD)/%,$(TSAN_CHECK))
	$(call RUN,tsan) $(TSAN_CHECK)
#: make fuzz           every fuzzer for FUZZ_SECONDS (60); finds go to build/fuzz, the kept corpus is tests/fuzz/corpus
FUZZ_SECONDS ?= 60
CLANG ?= clang-14
fuzz:
	@if tests/have.sh fuzz $(CLANG); then $(MAKE) CC=$(CLANG) SAN=fuzzer,address,undefined suite-fuzz; fi
suite-fuzz: $(FUZZ_BIN); @tests/fuzz.sh $(FUZZ_SECONDS) $^
#: make qemu           unit, golden, state and kernel suites cross-built for aarch64 and emulated (also: check-qemu)
CROSS_CC ?= aarch64-linux-gnu-gcc
QEMU ?= qemu-aarch64
QEMU_LEFT := tests/state/test_demo_ids tests/state/test_conversations tests/state/test_memory
QEMU_CHECK := $(call some,$(KERNELS) $(filter-out $(QEMU_LEFT:%=$(BUILD)/%),$(call bins,state golden unit)))
qemu check-qemu:
	@if tests/have.sh qemu $(CROSS_CC) $(QEMU) apt-get 'tests/sysroot.sh arm64 build/sysroot-aarch64'; then $(MAKE) CC=$(CROSS_CC) suite-qemu; fi
suite-qemu: $(BUILD)/lily $(QEMU_CHECK); $(call RUN,qemu) $(foreach f,$(QEMU_LEFT),-x '$f: emulated, it takes too long or counts memory of the emulator') -e "$(QEMU) -L $(SYSROOT)" $(QEMU_CHECK)
static-programs: $(KERNELS) $(BUILD)/tests/golden/test_tiny $(BUILD)/tests/golden/test_tiny_mlx # of tests/neon.sh, tests/avx512.sh
#: make check-clients  the official SDKs (Python, JavaScript) against the server
check-clients: $(BUILD)/lily; @LILY=$(BUILD)/lily tests/clients/run.sh
#: make bench-serve    latency of the server: under load, of first bytes, of leaving clients; overhead per token
bench-serve: $(BUILD)/lily $(BUILD)/tests/bench/serve_load; @BUILD=$(BUILD) LILY=$(BUILD)/lily tests/bench/serve.py
#: make bench-cache    what the prompt cache saves and holds (CACHE: options of tests/bench/turns.py)
bench-cache: $(BUILD)/lily; @BUILD=$(BUILD) LILY=$(BUILD)/lily tests/bench/turns.py $(CACHE)
#: make check-agents   Codex, Claude Code, opencode, Qwen Code against the server; fetches more than 1 GB, in no other target
check-agents: $(BUILD)/lily; @LILY=$(BUILD)/lily tests/clients/agents/run.sh
#: make check-web      the page in Chromium, with screenshots in build/screens (T=part of a file's name; also: STREAM_SECONDS)
check-web: $(BUILD)/lily; @LILY=$(BUILD)/lily MARKED=$(MARKED) tests/web/run.sh $(T)
#: make soak           long runs
soak: $(BUILD)/lily $(BUILD)/tests/bench/serve_load $(filter $(BUILD)/%,$(SOAK))
	$(call RUN,soak) $(SOAK)
#: make check-all      everything that this machine can run: check, check-san with longer fuzzing, tsan, qemu, soak, clients, page (as root, check in a fresh chroot)
check-all:
	@tests/sum.sh $(if $(and $(filter 0,$(shell id -u)),$(shell command -v debootstrap)),,"$(MAKE) check") "$(MAKE) check-san SAN_FUZZ=$(FUZZ_SECONDS)" "$(MAKE) check-san-api" "$(MAKE) tsan" "$(MAKE) qemu" "$(MAKE) soak" "$(MAKE) check-clients" "$(MAKE) check-web" tests/chroot.sh
#: make counts         the counts of the last run of each suite, in the form of tests/min_counts
counts:; @cat build/*/counts-* 2>/dev/null
.PHONY: check check-web check-clients check-agents bench-serve bench-cache check-san check-san-api suite-san-api check-all $(PARTS) tsan qemu check-qemu fuzz soak bench bench-kernels bench-tokenizer counts suite-san suite-tsan suite-qemu suite-fuzz static-programs
ALL_SRC = $(LIB_SRC) $(CMD_SRC) $(TEST_C) $(KERNEL_SRC) $(FUZZ_SRC) $(wildcard tests/fuzz/replay.c tests/bench/*.c)
-include $(patsubst %.c,$(BUILD)/%.d,$(ALL_SRC))
