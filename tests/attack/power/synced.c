/* What a disk holds after the power has failed: of each file what was synced, under the names that were synced.
 *
 * Preloaded (LD_PRELOAD) into a process that writes below POWER_ROOT. Each fsync or fdatasync of a file copies
 * its content to POWER_MIRROR/data-<inode>; each one of a directory writes down its entries, by inode, as
 * POWER_MIRROR/names-<inode of the directory>. The disk itself is not waited for: nobody pulls its plug.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;

static int is_below_root(int fd, char *path) {
    const char *root = getenv("POWER_ROOT");
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (root == NULL || length < 0) return 0;
    path[length] = '\0';
    return strncmp(path, root, strlen(root)) == 0;
}

static void in_mirror(char *path, const char *what, ino_t inode, const char *end) {
    snprintf(path, PATH_MAX, "%s/%s-%llu%s", getenv("POWER_MIRROR"), what, (unsigned long long)inode, end);
}

static int write_content(int fd, int copy) {
    char block[1 << 16], link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int from = open(link, O_RDONLY | O_CLOEXEC);
    if (from < 0) return -1;
    ssize_t got;
    int failed = 0;
    while (!failed && (got = read(from, block, sizeof block)) != 0)
        failed = got < 0 || write(copy, block, got) != got;
    close(from);
    return failed;
}

static int write_names(const char *path, int copy) {
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (folder == NULL) return -1;
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_type == DT_REG) dprintf(copy, "%llu %s\n", (unsigned long long)entry->d_ino, entry->d_name);
    closedir(folder);
    return 0;
}

static void keep(int fd) {
    char path[PATH_MAX], partly[PATH_MAX], whole[PATH_MAX];
    struct stat found;
    if (!is_below_root(fd, path) || fstat(fd, &found) != 0) return;
    int is_folder = S_ISDIR(found.st_mode);
    in_mirror(partly, "partly", found.st_ino, "");
    in_mirror(whole, is_folder ? "names" : "data", found.st_ino, "");
    pthread_mutex_lock(&one_by_one);
    int copy = open(partly, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int failed = copy < 0 || (is_folder ? write_names(path, copy) : write_content(fd, copy));
    if (copy >= 0) close(copy);
    if (failed || rename(partly, whole) != 0) abort(); /* a test that cannot look must not pass */
    pthread_mutex_unlock(&one_by_one);
}

int fsync(int fd) {
    keep(fd);
    return 0;
}

int fdatasync(int fd) {
    keep(fd);
    return 0;
}
