/* Status words. */
#include "serve/http_status.h"

#include <stddef.h>

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {{200, "OK"}, {204, "No Content"}, {304, "Not Modified"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
                 {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"}, {413, "Content Too Large"}, {417, "Expectation Failed"},
                 {421, "Misdirected Request"}, {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].status == status) return known[i].reason;
    return "Unknown";
}
