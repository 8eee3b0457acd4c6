/*
 * Ctrl-C. While an answer is guarded, the first SIGINT sets its flag and the second ends the program; outside, the first
 * one ends it. Ending means: styles off, status 130. In the chat no SIGINT ends it: at the prompt it is only noted, by
 * interrupt_wait, and behind it it stops the answer however often it comes, since who presses twice means the answer, too.
 * Thread: the main one; the flag may be read by any.
 */
#ifndef LILY_CMD_INTERRUPT_H
#define LILY_CMD_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

enum interrupt_mode { INTERRUPT_ENDS, INTERRUPT_STOPS_ANSWER, INTERRUPT_ONLY_STOPS, INTERRUPT_IS_NOTED };

void interrupt_init(void);
/* Returns the mode before. A change of the mode clears the flag. */
enum interrupt_mode interrupt_mode(enum interrupt_mode mode);
/* Guards an answer: INTERRUPT_STOPS_ANSWER, but for the chat, whose mode and flag stay. Returns the mode before. */
enum interrupt_mode interrupt_guard(void);
void interrupt_note(void); /* as the signal in INTERRUPT_IS_NOTED does: Ctrl-C came as a key */
const atomic_bool *interrupt_flag(void);
bool interrupted(void);
/* In INTERRUPT_IS_NOTED: waits until fd can be read. False after Ctrl-C, wherever it came in. */
bool interrupt_wait(int fd);

#endif
