/* The quantization block of config.json. Internal to load/; called by config_parse once. */
#ifndef LILY_LOAD_QUANT_H
#define LILY_LOAD_QUANT_H

#include "json/json.h"
#include "load/config.h"

/* Fills quant_default and overrides from the root object; `what` names the file in errors. */
lily_status quant_parse(const struct json *root, const char *what, struct model_config *out, struct lily_err *err);

#endif
