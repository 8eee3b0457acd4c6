/* Asks one question and prints the answer as it comes: minimal MODEL_DIR QUESTION
   After make install (with a PREFIX of your own: PKG_CONFIG_PATH=PREFIX/lib/pkgconfig):
   cc -o minimal minimal.c $(pkg-config --cflags --libs lily) */
#include <lily/lily.h>
#include <stdio.h>

static int print_text(void *ctx, enum lily_part part, const char *text, size_t n)
{
    if (part == LILY_TEXT) fwrite(text, 1, n, ctx);
    return fflush(ctx); /* not 0 when the reader has gone: the answer ends */
}

int main(int argc, char **argv)
{
    lily_model *model = NULL;
    lily_prompt *prompt = NULL;
    lily_session *session = NULL;
    struct lily_request request;
    struct lily_err err;
    if (argc != 3) {
        fprintf(stderr, "usage: minimal MODEL_DIR QUESTION\n");
        return 2;
    }
    lily_status st = lily_open(argv[1], NULL, &model, &err);
    if (st == LILY_OK) st = lily_prompt_ask(model, NULL, argv[2], 0, &prompt, &err);
    if (st == LILY_OK) st = lily_session_new(model, &session, &err);
    if (st == LILY_OK) {
        lily_request_init(&request, model, prompt);
        request.max_tokens = 200;
        request.on_text = print_text;
        request.ctx = stdout;
        st = lily_generate(session, &request, NULL, &err);
    }
    if (st == LILY_OK) puts("");
    else fprintf(stderr, "minimal: %s\n", err.msg);

    lily_session_free(session);
    lily_prompt_free(prompt);
    lily_close(model);
    return st != LILY_OK;
}
