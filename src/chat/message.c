/* Making messages. */
#include "chat/message.h"

struct json *chat_message(const char *role, const char *text, size_t n)
{
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string(role));
    json_put(m, "content", json_new_text(text, n));
    return m;
}

lily_status chat_message_add(struct json *messages, const char *role, const struct buf *text, struct lily_err *err)
{
    struct json *m = json_new_object();
    json_put(m, "role", json_new_string(role));
    json_add(messages, m);
    return json_put_text(m, "content", text, err);
}
