// What a pod does to show that its volume, its memory limit and its service are real: writes a file and answers whoever
// connects; with an argument, eats memory.
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        for (;;) memset(malloc(1 << 20), 1, 1 << 20);
    }
    int file = open("/data/written", O_CREAT | O_WRONLY | O_APPEND, 0644);
    if (file < 0 || write(file, "yes", 3) != 3) return 1;
    close(file);
    write(1, "written\n", 8);
    int door = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(8080)};
    if (bind(door, (struct sockaddr *)&here, sizeof here) || listen(door, 16)) return 1;
    for (;;) {
        int guest = accept(door, 0, 0);
        write(guest, "served\n", 7);
        close(guest);
    }
}
