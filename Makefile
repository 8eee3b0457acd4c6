# lily: build, tests, install. `make help` lists the targets.
#
# CC, MODE=release|debug and SAN=address,undefined|thread choose the build folder build/<cc>-<mode>[-<san>], so that
# configurations never mix. The suffix of a kernel file (_avx2, _avx512, _neon) selects its instruction-set flags.

MAKEFLAGS += -rR --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# "undefined" is what a nested make sees, because of -R.
ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
MODE ?= release
SAN ?=
PREFIX ?= /usr/local
VERSION := $(shell cat VERSION)
# V=1 shows the commands.
Q := $(if $(V),,@)
include mk/config.mk
include mk/build.mk
include mk/cuda.mk
include mk/tests.mk
include mk/install.mk
.PHONY: all help clean demo docs compile_commands.json
all: lily liblily.a $(CUDA_BUILT)
#: make demo           build, then tell a story with the small model that comes with lily
demo: lily
	./lily run -m models/demo --seed 1 "Tell me a short story about a fox and a lantern."
#: make docs           the man page and the completions again, after a change of commands or options
docs: lily
	python3 tools/gen_docs.py ./lily
#: make compile_commands.json  the compilation database, for editors
compile_commands.json:
	@$(foreach f,$(ALL_SRC),printf '%s\n' $(call shell_word,$(call command_of,$f));) true >$@.tmp
	@{ echo '['; sed '$$!s/$$/,/' $@.tmp; echo ']'; } >$@; rm -f $@.tmp
shell_word = '$(subst ','\'',$1)'
command_of = {"directory": "$(CURDIR)", "file": "$1", "command": "$(subst ",\",$(CC) $(CFLAGS_ALL) $(call isa_of,$1) -c $1)"}
#: make clean          remove what was built
clean:
	rm -rf build lily liblily.a compile_commands.json lily-*.tar.gz
help:
	@sed -n 's/^#: //p' mk/build.mk Makefile mk/tests.mk mk/install.mk
	@echo 'variables: CC=$(CC) MODE=release|debug SAN=address,undefined|thread PREFIX=$(PREFIX) DESTDIR= V=1 T=part-of-a-test-name'
