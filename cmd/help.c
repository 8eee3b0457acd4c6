/* lily help: the list of commands, the help of one, both also for machines. */
#include <stdio.h>

#include "commands.h"

struct help_args {
    struct common_args common;
};

void commands_help(struct buf *out)
{
    buf_addz(out, "Usage: lily COMMAND [options] ...\n"
                  "Runs language models of the Qwen3.6-35B-A3B family on this machine.\n\nCommands:\n");
    for (int i = 0; commands[i]; i++) buf_printf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    buf_addz(out, "\nlily help COMMAND shows the options of one; lily --version the version.\n"
                  "Without -m DIR a command takes the model of $LILY_MODEL, else the newest pulled\n"
                  "one, else the demo model.\n\n"
                  "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n");
}

static struct json *list_commands(void)
{
    struct json *top = json_new_object(), *list = json_new_array();
    json_put(top, "version", json_new_string(LILY_VERSION));
    for (int i = 0; commands[i]; i++) json_add(list, opts_json_of(commands[i]));
    json_put(top, "commands", list);
    return top;
}

static lily_status run_help(void *args, int n, char **words, struct lily_err *err)
{
    const struct help_args *a = args;
    const struct command *c = n ? command_find(words[0], err) : NULL;
    if (n && !c) return LILY_ERR_USAGE;
    if (a->common.json) {
        print_json(c ? opts_json_of(c) : list_commands());
        return LILY_OK;
    }
    struct buf text = {0};
    if (c) opts_help(c, &text);
    else commands_help(&text);
    write_output(buf_str(&text), text.len);
    buf_free(&text);
    return LILY_OK;
}

const struct command cmd_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .summary = "show the commands, or the options of one",
    .about = "Shows the commands of lily, or what one command does and its options.\n"
             "With --json, all of it as data: {version, commands: [{name, usage, summary,\n"
             "about, options: [{long, short, arg, help, group}]}]}, or one element of\n"
             "commands.",
    .uses = {{&opts_json, offsetof(struct help_args, common)}},
    .max_args = 1,
    .args_size = sizeof(struct help_args),
    .run = run_help,
};
