/*
 * What a fault program does with a bent model folder: load it as far as lily goes and read everything that was accepted.
 */
#ifndef LILY_TESTS_TRY_LOAD_H
#define LILY_TESTS_TRY_LOAD_H

#include "base/err.h"

/* LILY_OK when the folder was accepted; everything is released either way. */
lily_status try_load(const char *dir, struct lily_err *err);

#endif
