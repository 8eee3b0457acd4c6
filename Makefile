# lily: build, tests, install. `make help` lists the targets.
#
# CC, MODE=release|debug and SAN=address,undefined|thread choose the build folder build/<cc>-<mode>[-<san>], so that
# configurations never mix. The suffix of a kernel file (_avx2, _avx512, _neon) selects its instruction-set flags.

MAKEFLAGS += -rR
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

CC ?= gcc
ifeq ($(origin CC),default)
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
include mk/tests.mk
include mk/install.mk

.PHONY: all help clean
all: lily liblily.a
clean:
	rm -rf build lily liblily.a
help:
	@sed -n 's/^#: //p' Makefile mk/*.mk
