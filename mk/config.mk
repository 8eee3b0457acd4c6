# Compiler, flags, libraries.
comma := ,
CC_NAME := $(notdir $(lastword $(CC)))
# STATIC=1 builds what needs no library, and links it statically (tests/neon.sh).
STATIC ?=
BUILD := build/$(CC_NAME)-$(MODE)$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(STATIC),-static)

MACHINE := $(firstword $(subst -, ,$(shell $(lastword $(CC)) -dumpmachine 2>/dev/null)))
HOST := $(shell uname -m)
# A cross build takes the libraries from a folder that tests/sysroot.sh fills.
CROSS := $(filter-out $(HOST),$(MACHINE))
SYSROOT := $(if $(STATIC),,$(if $(CROSS),build/sysroot-$(CROSS)))
PKG_CONFIG := $(if $(SYSROOT),PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(CROSS)-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$(SYSROOT)) pkg-config

PACKAGES := $(if $(STATIC),,libpcre2-8 libutf8proc libcrypto libxxhash libevent_core libevent_extra)
ifeq ($(filter clean help dist,$(MAKECMDGOALS)),)
ifeq ($(MACHINE),)
$(error no C compiler: "$(CC)" does not run. On Debian and Ubuntu ./demo.sh installs what is missing and builds)
endif
ifneq ($(if $(STATIC),yes,$(shell $(PKG_CONFIG) --exists $(PACKAGES) && echo yes)),yes)
$(error lily needs pkg-config and the development files of: $(PACKAGES). On Debian and Ubuntu ./demo.sh installs what is missing and builds; mk/packages.txt has the names)
endif
endif
PKG_CFLAGS := $(if $(SYSROOT),--sysroot=$(SYSROOT)) $(if $(PACKAGES),$(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null))
PKG_LIBS := $(if $(STATIC),-static,$(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null))
AR := $(if $(CROSS),$(patsubst %gcc,%ar,$(CC)),ar)

# Warnings are errors with the compilers that are tested (gcc 12, clang 14), and only warnings with others. Sanitizers make
# gcc see truncations and uninitialised values that are none: there the plain build's word counts.
CC_VERSION := $(shell $(lastword $(CC)) -dumpversion 2>/dev/null)
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla $(if $(filter 12 12.% 14.0.%,$(CC_VERSION)),-Werror)
WARN := $(if $(SAN),-w,$(WARN))
# _GNU_SOURCE for clocks, mmap, affinity under -std=c17; contraction off so that every FMA is written out.
BASE_FLAGS := -std=c17 -D_GNU_SOURCE -DLILY_VERSION='"$(VERSION)"' -Isrc -Iinclude \
  -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-common -pthread -g $(WARN)
OPT := $(if $(filter debug,$(MODE)),-O1 -DLILY_DEBUG,-O3)
# SAN with "fuzzer" (clang) instruments the library for tests/fuzz.
ifneq ($(SAN),)
OPT := -O2 -fno-omit-frame-pointer -DLILY_SAN -fsanitize=$(subst fuzzer,fuzzer-no-link,$(SAN)) \
  $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
endif
CFLAGS_ALL = $(BASE_FLAGS) $(OPT) $(PKG_CFLAGS) $(CFLAGS)
LDLIBS_ALL = $(PKG_LIBS) $(LDFLAGS) -lm -pthread

# Instruction sets by file suffix; a file without a suffix gets none. gcc 12 copies sums about in loops that add to many of them.
ISA_avx2 := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c $(if $(findstring clang,$(CC)),,-fno-tree-coalesce-vars)
ISA_amx := $(filter-out -fno-tree%,$(ISA_avx512)) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
ISA_neon := -march=armv8.2-a+dotprod
isa_flags = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $1)))))
# ThreadSanitizer would make these kernels many times slower. What threads share is decided around them, in files that it
# watches, as it does the scalar kernels.
isa_of = $(isa_flags)$(if $(and $(isa_flags),$(findstring thread,$(SAN))), -fno-sanitize=thread)

# Files of other architectures are left out.
ISA_FILES := %_avx2.c %_avx512.c %_amx.c %_neon.c
FOREIGN := $(filter-out $(if $(filter x86_64,$(MACHINE)),%_avx2.c %_avx512.c %_amx.c,$(if $(filter aarch64,$(MACHINE)),%_neon.c)),$(ISA_FILES))
