/* The inside of a struct tokenizer, for the files of this folder and their tests. */
#ifndef LILY_TEXT_IMPL_H
#define LILY_TEXT_IMPL_H

#include "base/file.h"
#include "text/added.h"
#include "text/image.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/tokenizer.h"

struct tokenizer {
    struct image image;        /* views into block or map */
    void *block;               /* owned when built; NULL when mapped */
    size_t block_size;
    struct file_map map;       /* owned when mapped from the cache folder */
    struct added *added;       /* owned */
    struct splitter *splitter; /* owned */
    struct nfc *nfc;           /* owned; NULL when text is taken as it is */
};

/* Sets up the rest of a tokenizer whose image is in place. */
lily_status tokenizer_finish(struct tokenizer *t, struct lily_err *err);

#endif
