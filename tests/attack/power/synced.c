/* A drive that forgets what was not synced. Preloaded into a process, it keeps beside the files of one folder what
 * a disk would hold of them after a power cut, by POSIX and no more:
 *
 *   files/INODE    what the file held when it was last synced
 *   folders/INODE  the names that stood in the folder when it was last synced: of files links to files/INODE (one
 *                  that was never synced is empty), of folders symlinks to the inode number
 *
 * In place of a real sync, what a sync makes safe is copied there. Before the sync with the number POWER_FAILS_AT the
 * process kills itself.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONG 4096

static char root[LONG], disk[LONG];
static long cut_at, syncs;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what)
{
    perror(what);
    _exit(86);
}

__attribute__((constructor)) static void begin(void)
{
    const char *folder = getenv("POWER_ROOT"), *kept = getenv("POWER_MIRROR"), *at = getenv("POWER_FAILS_AT");
    if (!folder || !kept)
        return;
    snprintf(root, LONG, "%s", folder);
    snprintf(disk, LONG, "%s", kept);
    cut_at = at ? atol(at) : 0;
}

/* Say whether a descriptor is of something in the folder that still has a name, or is the folder itself. */
static int is_watched(int fd)
{
    char link[64], path[LONG];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = root[0] ? readlink(link, path, LONG - 1) : -1;
    size_t of_root = strlen(root);
    if (length < (ssize_t)of_root)
        return 0;
    path[length] = 0;
    return !strncmp(path, root, of_root) && (path[of_root] == '/' || !path[of_root]) && !strstr(path, " (deleted)");
}

static void place(char *into, const char *kind, unsigned long inode)
{
    if (snprintf(into, LONG, "%s/%s/%lu", disk, kind, inode) >= LONG)
        fail("a path is too long");
}

static int file_of(unsigned long inode)
{
    char path[LONG];
    place(path, "files", inode);
    int kept = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (kept < 0)
        fail(path);
    return kept;
}

/* In place: one that is interrupted leaves some pages of before and some of now, as a drive does. */
static void keep_file(int fd, const struct stat *now)
{
    static char page[1 << 16];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int from = open(path, O_RDONLY | O_CLOEXEC), to = file_of(now->st_ino);
    if (from < 0)
        fail("a file that is synced cannot be read");
    ssize_t number;
    off_t at = 0;
    while ((number = pread(from, page, sizeof page, at)) > 0) {
        if (pwrite(to, page, number, at) != number)
            fail("the disk is full");
        at += number;
    }
    if (ftruncate(to, at))
        fail("the disk");
    close(from);
    close(to);
}

static void keep_name(const char *into, DIR *folder, const char *name)
{
    char kept[2 * LONG], of[LONG];
    struct stat now;
    snprintf(kept, sizeof kept, "%s/%s", into, name);
    if (fstatat(dirfd(folder), name, &now, AT_SYMLINK_NOFOLLOW))
        return; /* it is gone meanwhile */
    if (S_ISDIR(now.st_mode)) {
        snprintf(of, LONG, "%lu", (unsigned long)now.st_ino);
        if (symlink(of, kept))
            fail(kept);
    } else if (S_ISREG(now.st_mode)) {
        close(file_of(now.st_ino));
        place(of, "files", now.st_ino);
        if (link(of, kept))
            fail(kept);
    }
}

/* By the system call itself: below, unlink() is ours. */
static void take_away(int at, const char *name)
{
    syscall(SYS_unlinkat, at, name, 0);
}

static void empty(const char *folder)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return;
    for (struct dirent *entry; (entry = readdir(entries));)
        take_away(dirfd(entries), entry->d_name);
    closedir(entries);
    rmdir(folder);
}

static void keep_folder(int fd, const struct stat *now)
{
    char kept[LONG], next[LONG + 8], path[64];
    place(kept, "folders", now->st_ino);
    snprintf(next, sizeof next, "%s.next", kept);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    empty(next);
    mkdir(kept, 0700);
    if (mkdir(next, 0700))
        fail(next);
    DIR *entries = opendir(path);
    if (!entries)
        fail("a folder that is synced cannot be read");
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            keep_name(next, entries, entry->d_name);
    closedir(entries);
    if (syscall(SYS_renameat2, AT_FDCWD, next, AT_FDCWD, kept, RENAME_EXCHANGE))
        fail(kept);
    empty(next);
}

static int keep(int fd)
{
    struct stat now;
    pthread_mutex_lock(&one_at_a_time);
    if (cut_at && ++syncs == cut_at)
        kill(getpid(), SIGKILL);
    if (fstat(fd, &now))
        fail("fstat");
    if (S_ISDIR(now.st_mode))
        keep_folder(fd, &now);
    else
        keep_file(fd, &now);
    pthread_mutex_unlock(&one_at_a_time);
    return 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd)
{
    return is_watched(fd) ? keep(fd) : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    return is_watched(fd) ? keep(fd) : NEXT(fdatasync)(fd);
}

/* The number of an inode that is gone is soon another file's, which was never synced. */
static void forget(int failed, int at, const char *path, const struct stat *gone)
{
    char kept[LONG];
    struct stat now;
    int saved = errno;
    if (failed || !root[0] || !S_ISREG(gone->st_mode) || gone->st_nlink > 1)
        return;
    if (fstatat(at, path, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == gone->st_ino)
        return;
    place(kept, "files", gone->st_ino);
    take_away(AT_FDCWD, kept);
    errno = saved;
}

int unlinkat(int at, const char *path, int flags)
{
    struct stat gone = {0};
    int unknown = fstatat(at, path, &gone, AT_SYMLINK_NOFOLLOW);
    int result = NEXT(unlinkat)(at, path, flags);
    forget(result || unknown, at, path, &gone);
    return result;
}

int unlink(const char *path)
{
    struct stat gone = {0};
    int unknown = fstatat(AT_FDCWD, path, &gone, AT_SYMLINK_NOFOLLOW);
    int result = NEXT(unlink)(path);
    forget(result || unknown, AT_FDCWD, path, &gone);
    return result;
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    struct stat gone = {0};
    int unknown = fstatat(to_at, to, &gone, AT_SYMLINK_NOFOLLOW);
    int result = NEXT(renameat)(from_at, from, to_at, to);
    forget(result || unknown, to_at, to, &gone);
    return result;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
