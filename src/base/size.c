/* A size as text, with three or four digits. */
#include "base/size.h"

#include <stdio.h>

struct size_text size_text(double bytes)
{
    struct size_text t;
    if (bytes >= 1e9) snprintf(t.s, sizeof t.s, "%.2f GB", bytes / 1e9);
    else if (bytes >= 1e6) snprintf(t.s, sizeof t.s, bytes >= 1e8 ? "%.0f MB" : "%.1f MB", bytes / 1e6);
    else if (bytes >= 1e3) snprintf(t.s, sizeof t.s, "%.1f kB", bytes / 1e3);
    else snprintf(t.s, sizeof t.s, "%.0f B", bytes);
    return t;
}
