/* What answers of a hub mean: errors, and whether to ask again. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "fetch.h"

static const double first_delay_ms = 250, longest_delay_ms = 60e3;

bool fetch_may_retry(const struct web_transfer *t)
{
    if (t->status == 408 || t->status == 429 || t->status >= 500) return true;
    return t->status < 400 && !t->complete; /* cut, perhaps on the way to where a redirect leads */
}

double fetch_delay_ms(const struct web_transfer *t, int n)
{
    double delay = first_delay_ms * (1 << (n < 9 ? n - 1 : 8));
    if (t->retry_after * 1e3 > delay) delay = t->retry_after * 1e3;
    return delay < longest_delay_ms ? delay : longest_delay_ms;
}

lily_status fetch_status_error(const struct web_transfer *t, const char *what, struct lily_err *err)
{
    long s = t->status;
    if (s == 0 || (s >= 300 && s < 400 && t->error[0])) {
        err_set(err, LILY_ERR_IO, "%s: no answer: %s", what, t->error);
        err_hint(err, "look at the network, HF_ENDPOINT and the proxy variables; lily pull goes on where it stopped");
        return LILY_ERR_IO;
    }
    if (s >= 200 && s < 300) {
        err_set(err, LILY_ERR_IO, "%s: the transfer broke off: %s", what, t->error);
        err_hint(err, "run the command again: it goes on where it stopped");
        return LILY_ERR_IO;
    }
    err_set(err, LILY_ERR_IO, "%s: the server answers %ld", what, s);
    if (s == 401 || s == 403) err_hint(err, "the repository is private, gated or does not exist: accept its terms and set HF_TOKEN to a token that may read it");
    else if (s == 404) err_hint(err, "is the name right? OWNER/NAME, and @REVISION for another branch than main");
    else if (s == 429) err_hint(err, "too many requests: wait a while, or set HF_TOKEN");
    else if (s >= 500) err_hint(err, "the server has trouble: run the command again later, it goes on where it stopped");
    else err_hint(err, "is HF_ENDPOINT right?");
    return LILY_ERR_IO;
}
