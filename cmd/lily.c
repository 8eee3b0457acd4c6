/* The lily program: dispatch to one file per command. */
#include <stdio.h>

int main(void)
{
    fprintf(stderr, "lily " LILY_VERSION "\n");
    return 2;
}
