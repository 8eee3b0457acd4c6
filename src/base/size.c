/* A size as text, with three or four digits. */
#include "base/size.h"

#include <stdio.h>

struct size_text size_text(double bytes)
{
    struct size_text t;
    if (bytes >= GIB) snprintf(t.s, sizeof t.s, "%.2f GiB", bytes / GIB);
    else if (bytes >= MIB) snprintf(t.s, sizeof t.s, bytes >= 100 * MIB ? "%.0f MiB" : "%.1f MiB", bytes / MIB);
    else if (bytes >= KIB) snprintf(t.s, sizeof t.s, "%.1f KiB", bytes / KIB);
    else snprintf(t.s, sizeof t.s, "%.0f B", bytes);
    return t;
}
