/*
 * The modes of the terminal on stdin while the chat has changed them: however lily ends or stops (Ctrl-Z), the terminal is
 * as it was before, and what is typed but not read yet stays.
 * Thread: the main one; terminal_restore may be called from a signal handler, too.
 */
#ifndef LILY_CMD_TERMINAL_H
#define LILY_CMD_TERMINAL_H

/* Remembers the modes, before they are changed; from here on signals that end or stop lily restore them first. */
void terminal_remember(void);
/* Back to the remembered modes; nothing if there are none. */
void terminal_restore(void);
/* The key that interrupts, as remembered; -1 for none. */
int terminal_interrupt_key(void);

#endif
