/*
 * Random conversations with the demo model: edits, regenerations, branches, tool loops, thinking kept and dropped. Every
 * prompt's last logits from saved state equal those of a cold run bit for bit, and so do the ids that follow.
 */
#ifndef LILY_TESTS_CONVERSATIONS_H
#define LILY_TESTS_CONVERSATIONS_H

/* How the warm side runs: threads, and conversations at once (1 or 4). */
struct warm_run {
    int threads, together;
};

/* Conversations first … first+n-1; fails the cmocka test at the first difference, or when too little was reused. */
void check_conversations(int first, int n, struct warm_run run);

#endif
