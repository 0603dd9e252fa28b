// What a pod does to show that its volume and its memory limit are real: writes a file; with an argument, eats memory.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        for (;;) memset(malloc(1 << 20), 1, 1 << 20);
    }
    int file = open("/data/written", O_CREAT | O_WRONLY, 0644);
    if (file < 0 || write(file, "yes", 3) != 3) return 1;
    close(file);
    write(1, "written\n", 8);
    for (;;) pause();
}
