#ifndef TFC_RUNTIME_H
#define TFC_RUNTIME_H @VERSION@

/* What functions return. tfc_error() or <model>_error() has the text. */
#define TFC_OK 0       /* done */
#define TFC_DATA 1     /* the data does not fit */
#define TFC_USAGE 2    /* the call is wrong: something is null or unknown */
#define TFC_IO 3       /* a file, or this machine */
#define TFC_END 5      /* the input has ended; no checkpoint to restore */
#define TFC_BUG 101    /* a bug in tfc */

/* Element types. f16 and bf16 are uint16_t, bool is uint8_t, 0 or 1. */
enum {
    TFC_F32 = 0, TFC_F64 = 1, TFC_F16 = 2, TFC_BF16 = 3, TFC_I8 = 4, TFC_U8 = 5, TFC_I32 = 6,
    TFC_I64 = 7, TFC_BOOL = 8
};

typedef struct tfc_program tfc_program;
typedef struct tfc_model tfc_model;
typedef struct tfc_runtime tfc_runtime;
typedef struct tfc_token tfc_token;

/* What a library of a model exports. */
typedef struct tfc_library {
    uint32_t version;
    uint32_t reserved;
    uint64_t interface_id;
    const tfc_runtime *runtime;
    const tfc_program *program;
} tfc_library;

/* How to load a model; zero it first. */
typedef struct tfc_options {
    uint32_t threads; /* of its own; 0 for those all models of the process share */
    uint32_t allow_nan; /* not 0: go on though a loss is NaN or infinite, save variables that are */
    const char *directory; /* where relative paths of the graph begin, or NULL */
    const char *sandbox; /* the directory that the graph's paths must not leave, or NULL */
    /* Gets each line that the graph prints, from any thread; NULL for standard error. */
    void (*print)(void *print_data, const char *line);
    void *print_data;
    const char *device; /* "cpu", "cuda" or "cuda:1"; NULL for a GPU if there is one */
} tfc_options;

/* A tensor lent to a call: dense, row-major. */
typedef struct tfc_feed {
    uint32_t dtype;
    uint32_t rank;
    const int64_t *shape;
    const void *data;
    size_t bytes;
} tfc_feed;

/* Memory for a result. Its shape is filled in, unless NULL. */
typedef struct tfc_tensor {
    uint32_t dtype;
    uint32_t rank;
    int64_t *shape;
    void *data;
    size_t bytes;
} tfc_tensor;

/* What a model has; see tfc_signature_of(). Sizes that depend on dims are -1. */
typedef struct tfc_port {
    const char *name;
    const char *type; /* such as "f32[B, 784]" */
    uint32_t dtype;
    uint32_t rank;
    const int64_t *shape;
} tfc_port;

typedef struct tfc_entry {
    const char *name;
    const char *doc;
    int index; /* for tfc_call() */
    uint32_t runner_count; /* runners that its calls start */
    const tfc_port *params;
    size_t param_count;
    const tfc_port *results;
    size_t result_count;
} tfc_entry;

typedef struct tfc_dim {
    const char *name;
    int64_t min, max; /* inclusive */
} tfc_dim;

typedef struct tfc_var {
    const char *name;
    uint32_t dtype;
    uint32_t rank;
    const int64_t *shape;
    size_t bytes;
    uint32_t user; /* 0 for optimizer slots and counters */
    uint32_t reserved;
} tfc_var;

typedef struct tfc_queue {
    const char *name;
    uint32_t kind; /* 0 first in, first out; 1 shuffled; 2 by priority; 3 a reader */
    uint32_t reserved;
    uint64_t capacity;
    const tfc_port *parts;
    size_t part_count;
} tfc_queue;

typedef struct tfc_signature {
    const char *name;
    const char *doc;
    const tfc_entry *entries;
    size_t entry_count;
    const tfc_dim *dims;
    size_t dim_count;
    const tfc_var *vars;
    size_t var_count;
    const tfc_queue *queues;
    size_t queue_count;
} tfc_signature;

/* The functions of a runtime. Called through the ones below. */
struct tfc_runtime {
    uint32_t version;
    uint32_t size;
    const char *(*last_error)(void);
    const char *(*last_error_code)(void);
    tfc_model *(*load)(const tfc_library *library, uint64_t interface_id, const tfc_options *options);
    void (*free)(tfc_model *model);
    const tfc_signature *(*signature)(const tfc_model *model);
    int (*entry)(const tfc_model *model, const char *name);
    int (*call)(const tfc_model *model, int entry, const tfc_feed *feeds, size_t feed_count,
                tfc_tensor *results, size_t result_count);
    int (*result_shape)(const tfc_model *model, int entry, const tfc_feed *feeds, size_t feed_count,
                        size_t result, int64_t *shape, size_t rank);
    int (*var_index)(const tfc_model *model, const char *name);
    int (*var_get)(const tfc_model *model, int var, void *data, size_t bytes);
    int (*var_set)(const tfc_model *model, int var, const void *data, size_t bytes);
    int (*reset)(const tfc_model *model);
    int (*save)(const tfc_model *model, const char *path);
    int (*restore)(const tfc_model *model, const char *path);
    int (*checkpoint_save)(const tfc_model *model, const char *dir, uint64_t step, size_t keep);
    int (*checkpoint_restore)(const tfc_model *model, const char *dir, uint64_t *step);
    int (*queue_index)(const tfc_model *model, const char *name);
    int (*queue_put)(const tfc_model *model, int queue, const tfc_feed *parts, size_t part_count);
    int (*queue_take)(const tfc_model *model, int queue, size_t count, tfc_tensor *parts,
                      size_t part_count);
    int (*queue_close)(const tfc_model *model, int queue);
    int64_t (*queue_size)(const tfc_model *model, int queue);
    int (*reader_paths)(const tfc_model *model, const char *reader, const char *const *paths,
                        size_t count);
    int (*runners_start)(const tfc_model *model, int entry);
    int (*runners_stop)(const tfc_model *model);
    tfc_token *(*cancel_new)(void);
    void (*cancel_free)(tfc_token *token);
    int (*cancel)(const tfc_token *token);
    int (*limit)(int64_t milliseconds, const tfc_token *token);
    void (*stale_ok)(int allowed);
};

/* A loaded model begins with its runtime. The rest is private. */
struct tfc_model {
    const tfc_runtime *runtime;
};

/* What this thread's last failure was, of this model's runtime; its code, such as "E0503". */
static inline const char *tfc_error(const tfc_model *model) {
    return model ? model->runtime->last_error() : "error[E0914]: the model is null";
}
static inline const char *tfc_error_code(const tfc_model *model) {
    return model ? model->runtime->last_error_code() : "E0914";
}

/* Entries, dims, variables and queues of a model; valid as long as the model. */
static inline const tfc_signature *tfc_signature_of(const tfc_model *model) {
    return model ? model->runtime->signature(model) : NULL;
}

/* Calls an entry by number (tfc_find_entry, tfc_entry.index). Feeds are in the order of its
 * parameters; results are written to the caller's memory. TFC_END when its input has ended. */
static inline int tfc_find_entry(const tfc_model *model, const char *name) {
    return model ? model->runtime->entry(model, name) : -1;
}
static inline int tfc_call(const tfc_model *model, int entry, const tfc_feed *feeds,
                           size_t feed_count, tfc_tensor *results, size_t result_count) {
    return model ? model->runtime->call(model, entry, feeds, feed_count, results, result_count)
                 : TFC_USAGE;
}

/* Writes the shape that a result would have; returns its number of axes, or -1. */
static inline int tfc_result_shape(const tfc_model *model, int entry, const tfc_feed *feeds,
                                   size_t feed_count, size_t result, int64_t *shape, size_t rank) {
    return model ? model->runtime->result_shape(model, entry, feeds, feed_count, result, shape, rank)
                 : -1;
}

/* Variables by number: copies one out or in; `bytes` is exactly its size. */
static inline int tfc_find_var(const tfc_model *model, const char *name) {
    return model ? model->runtime->var_index(model, name) : -1;
}
static inline int tfc_var_get(const tfc_model *model, int var, void *data, size_t bytes) {
    return model ? model->runtime->var_get(model, var, data, bytes) : TFC_USAGE;
}
static inline int tfc_var_set(const tfc_model *model, int var, const void *data, size_t bytes) {
    return model ? model->runtime->var_set(model, var, data, bytes) : TFC_USAGE;
}

/* Gives variables their initial values, empties queues, takes readers to their first record. */
static inline int tfc_reset(const tfc_model *model) {
    return model ? model->runtime->reset(model) : TFC_USAGE;
}

/* Writes all variables to a .safetensors file, or reads them back. */
static inline int tfc_save(const tfc_model *model, const char *path) {
    return model ? model->runtime->save(model, path) : TFC_USAGE;
}
static inline int tfc_restore(const tfc_model *model, const char *path) {
    return model ? model->runtime->restore(model, path) : TFC_USAGE;
}

/* Saves a checkpoint, keeping the newest `keep` (0: five) in `dir`; goes back to the newest good
 * one, whose step is written to `step` unless NULL. TFC_END if there is none. */
static inline int tfc_checkpoint_save(const tfc_model *model, const char *dir, uint64_t step,
                                      size_t keep) {
    return model ? model->runtime->checkpoint_save(model, dir, step, keep) : TFC_USAGE;
}
static inline int tfc_checkpoint_restore(const tfc_model *model, const char *dir, uint64_t *step) {
    return model ? model->runtime->checkpoint_restore(model, dir, step) : TFC_USAGE;
}

/* Queues and readers by number. Putting waits while a queue is full, taking until `count` elements
 * are there, side by side in each part; TFC_END when no more come. */
static inline int tfc_find_queue(const tfc_model *model, const char *name) {
    return model ? model->runtime->queue_index(model, name) : -1;
}
static inline int tfc_queue_put(const tfc_model *model, int queue, const tfc_feed *parts,
                                size_t part_count) {
    return model ? model->runtime->queue_put(model, queue, parts, part_count) : TFC_USAGE;
}
static inline int tfc_queue_take(const tfc_model *model, int queue, size_t count, tfc_tensor *parts,
                                 size_t part_count) {
    return model ? model->runtime->queue_take(model, queue, count, parts, part_count) : TFC_USAGE;
}
static inline int tfc_queue_close(const tfc_model *model, int queue) {
    return model ? model->runtime->queue_close(model, queue) : TFC_USAGE;
}
static inline int64_t tfc_queue_size(const tfc_model *model, int queue) {
    return model ? model->runtime->queue_size(model, queue) : -1;
}

/* Where a reader gets its records instead; before anything is read. */
static inline int tfc_reader_paths(const tfc_model *model, const char *reader,
                                   const char *const *paths, size_t count) {
    return model ? model->runtime->reader_paths(model, reader, paths, count) : TFC_USAGE;
}

/* Runners fill queues on threads of their own. The first call that needs them starts them; they
 * end with their input, with the model, or here. Stopping gives the status of one that failed. */
static inline int tfc_runners_start(const tfc_model *model, int entry) {
    return model ? model->runtime->runners_start(model, entry) : TFC_USAGE;
}
static inline int tfc_runners_stop(const tfc_model *model) {
    return model ? model->runtime->runners_stop(model) : TFC_USAGE;
}

/* Limits this thread's calls and waits, of all models of this runtime, from now on: they fail with
 * E0525 after so many milliseconds (negative: never), and with E0524 when any thread cancels the
 * token (unless NULL). */
static inline tfc_token *tfc_token_new(const tfc_model *model) {
    return model ? model->runtime->cancel_new() : NULL;
}
static inline void tfc_token_free(const tfc_model *model, tfc_token *token) {
    if (model) {
        model->runtime->cancel_free(token);
    }
}
static inline int tfc_cancel(const tfc_model *model, const tfc_token *token) {
    return model ? model->runtime->cancel(token) : TFC_USAGE;
}
static inline int tfc_limit(const tfc_model *model, int64_t milliseconds, const tfc_token *token) {
    return model ? model->runtime->limit(milliseconds, token) : TFC_USAGE;
}

/* Whether this thread's calls, of all models of this runtime, may from now on read the last complete
 * version of variables that another call is writing, rather than wait for it: for serving while
 * another thread trains. Calls of entries that write variables then fail with E0526. */
static inline void tfc_stale_ok(const tfc_model *model, int allowed) {
    if (model) {
        model->runtime->stale_ok(allowed);
    }
}

/* Arithmetic on sizes. What cannot be counted is INT64_MIN, which the runtime refuses. */
static inline int64_t tfc_add(int64_t a, int64_t b) {
    if (a == INT64_MIN || b == INT64_MIN || (b > 0 && a > INT64_MAX - b) ||
        (b < 0 && a <= INT64_MIN - b)) {
        return INT64_MIN;
    }
    return a + b;
}
static inline int64_t tfc_mul(int64_t a, int64_t b) {
    if (a == INT64_MIN || b == INT64_MIN) {
        return INT64_MIN;
    }
    if (b != 0 && (a < 0 ? -a : a) > INT64_MAX / (b < 0 ? -b : b)) {
        return INT64_MIN;
    }
    return a * b;
}
static inline int64_t tfc_div(int64_t a, int64_t b) {
    return a == INT64_MIN ? a : a / b - (a % b < 0 ? 1 : 0);
}
static inline int64_t tfc_max(int64_t a, int64_t b) {
    return a == INT64_MIN || b == INT64_MIN ? INT64_MIN : a > b ? a : b;
}
static inline size_t tfc_bytes(int64_t count, size_t size) {
    return count <= 0 || (uint64_t)count > SIZE_MAX / size ? 0 : (size_t)count * size;
}

#elif TFC_RUNTIME_H != @VERSION@
#error "these headers were made by different versions of tfc: compile the graphs again"
#endif
