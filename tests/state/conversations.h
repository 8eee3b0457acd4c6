/*
 * Random conversations with the demo model: edits, regenerations, branches, tool loops, thinking kept and dropped. Every
 * prompt's last logits from saved state equal those of a cold run bit for bit, and so do the ids that follow.
 */
#ifndef LILY_TESTS_CONVERSATIONS_H
#define LILY_TESTS_CONVERSATIONS_H

/* How a warm side runs: threads, and conversations at once (1 or 4). */
struct warm_run {
    int threads, together;
};

/*
 * Conversations first … first+n-1, each once cold and once on every one of n_runs (at most 6) warm sides; fails the cmocka
 * test at the first difference, or when a side reused too little.
 */
void check_conversations(int first, int n, const struct warm_run *runs, int n_runs);

#endif
