#!/bin/sh
# kill -9 at a hundred random moments while states are written to disk: no wrong answer, no start that fails, the quota holds.
KILLS=100 exec tests/api/test_cache_disk.py test_kill
