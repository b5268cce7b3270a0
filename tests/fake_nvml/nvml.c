/* Stands in for NVIDIA's libnvidia-ml.so.1 where there is no GPU: as much of it as the project calls.
 *
 * The folder $FAKE_NVML has a folder per GPU, named by its index. In it, bytes in decimal:
 *   <pid>         what this process has; it is gone when the process is, as on a GPU
 *   kept*         what stays with nobody to own it: a leak, or what the driver keeps for itself
 *   utilization   percent; without this file the GPU says nothing of it, as a part of one (MIG)
 *   uuid          its name, in place of a number
 * Where the folder has a file `hides-processes`, no owners are listed, as in many a container.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL (16ULL << 30)
#define MOST 64

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } Process;
typedef struct { Process listed[MOST]; unsigned int count; unsigned long long used; } State;

static char folders[MOST][600]; /* of the GPUs that were asked for; a handle points to one */

static const char *root(void) {
    const char *path = getenv("FAKE_NVML");
    return path ? path : "/nonexistent";
}

static int open_text(const char *path, char *text, int size) {
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
    return 1;
}

static int lives(const char *pid) {
    char path[600], text[600];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    if (!open_text(path, text, sizeof text)) return 0;
    const char *end = strrchr(text, ')');
    return end && end[2] != 'Z' && end[2] != 'X';
}

static void look(const char *folder, State *state) {
    memset(state, 0, sizeof *state);
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[800], text[64];
        int owned = isdigit(entry->d_name[0]);
        if (!owned && strncmp(entry->d_name, "kept", 4)) continue;
        if (owned && !lives(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!open_text(path, text, sizeof text)) continue;
        unsigned long long bytes = strtoull(text, 0, 10);
        state->used += bytes;
        if (owned && state->count < MOST) {
            Process process = {(unsigned int)atoi(entry->d_name), bytes, 0, 0};
            state->listed[state->count++] = process;
        }
    }
    closedir(directory);
}

static int handle_of(const char *name, void **handle) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root(), name);
    DIR *directory = opendir(path);
    if (!directory) return NOT_FOUND;
    closedir(directory);
    for (int i = 0; i < MOST; i++) {
        if (!folders[i][0]) snprintf(folders[i], sizeof folders[i], "%s", path);
        if (!strcmp(folders[i], path)) {
            *handle = folders[i];
            return SUCCESS;
        }
    }
    return INVALID_ARGUMENT;
}

int nvmlInitWithFlags(unsigned int flags) {
    DIR *directory = opendir(root());
    if (!directory) return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    closedir(directory);
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) { return "an error of the library in tests/fake_nvml"; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    char name[16];
    snprintf(name, sizeof name, "%u", index);
    return handle_of(name, handle);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char path[600], text[128];
    for (unsigned int i = 0; i < MOST; i++) {
        snprintf(path, sizeof path, "%s/%u/uuid", root(), i);
        if (open_text(path, text, sizeof text) && !strcmp(text, uuid))
            return nvmlDeviceGetHandleByIndex_v2(i, handle);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(const char *folder, Memory *memory) {
    State state;
    look(folder, &state);
    memory->total = TOTAL;
    memory->used = state.used;
    memory->free = TOTAL - state.used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(const char *folder, Utilization *rates) {
    char path[600], text[64];
    snprintf(path, sizeof path, "%s/utilization", folder);
    if (!open_text(path, text, sizeof text)) return NOT_SUPPORTED;
    rates->gpu = (unsigned int)atoi(text);
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const char *folder, unsigned int *count, Process *listed) {
    State state;
    char path[600];
    look(folder, &state);
    snprintf(path, sizeof path, "%s/hides-processes", root());
    FILE *hides = fopen(path, "r");
    if (hides) {
        fclose(hides);
        state.count = 0;
    }
    unsigned int room = *count;
    *count = state.count;
    if (!state.count) return SUCCESS;
    if (!listed || room < state.count) return INSUFFICIENT_SIZE;
    memcpy(listed, state.listed, state.count * sizeof *listed);
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(const char *folder, unsigned int *count, Process *listed) {
    *count = 0;
    return SUCCESS;
}
