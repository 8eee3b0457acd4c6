# Compiler, flags, libraries.
empty :=
space := $(empty) $(empty)
comma := ,

CC_NAME := $(notdir $(lastword $(CC)))
BUILD := build/$(CC_NAME)-$(MODE)$(if $(SAN),-$(subst $(comma),-,$(SAN)))

PACKAGES := jansson libpcre2-8 libutf8proc libcrypto libxxhash
ifneq ($(shell pkg-config --exists $(PACKAGES) && echo yes),yes)
ifneq ($(MAKECMDGOALS),clean)
ifneq ($(MAKECMDGOALS),help)
$(error lily needs the development packages of: $(PACKAGES). On Debian: apt-get install gcc make pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libssl-dev libxxhash-dev libedit-dev libcmocka-dev (or run ./demo.sh, which does it))
endif
endif
endif
PKG_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla -Werror
# _GNU_SOURCE for clocks, mmap, affinity under -std=c17; contraction off so that every FMA is written out.
BASE_FLAGS := -std=c17 -D_GNU_SOURCE -DLILY_VERSION='"$(VERSION)"' -Isrc -Iinclude \
  -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-common -pthread -g $(WARN)
OPT := $(if $(filter debug,$(MODE)),-O1 -DLILY_DEBUG,-O3)
ifneq ($(SAN),)
OPT := -O1 -fno-omit-frame-pointer -fsanitize=$(SAN) $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
endif
CFLAGS_ALL = $(BASE_FLAGS) $(OPT) $(PKG_CFLAGS) $(CFLAGS)
LDLIBS_ALL = $(PKG_LIBS) -lm -pthread

# Instruction sets by file suffix; a file without a suffix gets none.
ISA_avx2 := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c
ISA_amx := $(ISA_avx512) -mamx-tile -mamx-int8 -mamx-bf16
ISA_neon := -march=armv8.2-a+dotprod
isa_of = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $1)))))

# Files of other architectures are left out.
MACHINE := $(firstword $(subst -, ,$(shell $(lastword $(CC)) -dumpmachine)))
FOREIGN := $(if $(filter x86_64,$(MACHINE)),%_neon.c,%_avx2.c %_avx512.c %_amx.c)
