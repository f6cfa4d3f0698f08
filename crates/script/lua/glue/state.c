/*
** An interpreter: its memory, its books, its buffers.
**
** `used` is what lua_State has allocated, to the byte that it asked for, and what the buffers hold. An allocation beyond
** `limit` fails, which is Lua's error "not enough memory"; what is freed or shrinks never fails. Work of ours that cleans up
** (a full collection, closing) runs with the limit lifted.
*/

#include "glue.h"

/* A frame of the walkers, which do not recurse: see result.c, walk.c and play.c. */
typedef struct walk_frame {
  size_t at;		/* where the count of the aggregate lies in the buffer */
  size_t count;
  const Table *table;	/* walk.c only, with the next of its slots */
  size_t slot;
  int kind;
  int phase;
} walk_frame;

struct iso_interp {
  lua_State *L;
  const iso_calls *calls;
  void *bridge;			/* of the run under way, or NULL */
  size_t used;
  size_t limit;			/* 0: none */
  int resp;			/* protocol of the replies that the script sees */
  int stopped;			/* the script is to end, whatever it catches */
  int debugs;			/* the run under way, or the next, is debugged */
  int debug_counts;		/* calls of its count hook */
  int collector_touched;	/* the script has changed how garbage is collected */
  unsigned runs;	/* since the last step of the collector between runs */
  uint64_t random;		/* 48 bits */
  iso_buffer request;		/* a command in wire form */
  iso_span *spans;
  size_t span_count;
  size_t span_cap;
  iso_buffer debug_text;	/* what the debugger shows */
  iso_buffer tape;		/* arguments of a library's function, the result of a run */
  walk_frame *frames;
  size_t frame_cap;
  int handler;			/* reference to the error handler */
  int runs_functions;		/* of libraries, and no scripts */
  int loads;			/* a library is being loaded */
  int library_globals;		/* reference to what a library finds while it loads */
  int function_globals;		/* the same of functions that run */
  const char *stop_text;	/* why the run under way was stopped */
  const TString *keys_name;	/* of the global tables, whose keys they are and stay */
  const TString *argv_name;
  const iso_config *config;	/* while it is opened only */
  const iso_library *libraries;
  size_t library_count;
};

/* Buffers above this are given back after a run. */
#define BUFFER_KEPT_MAX		(64 * 1024)

/* Instructions (and steps of libraries) after which Host::checkpoint is asked; and of a script that was suspended there. */
#define HOOK_INSTRUCTIONS	100000
#define HOOK_OFTEN		10000

#define SCRIPT_STOPPED		"Script killed by user with SCRIPT KILL."
#define FUNCTION_STOPPED	"Script killed by user with FUNCTION KILL."

/* The stack of the main thread: what every run finds there. */
#define SLOT_HANDLER	1
#define SLOT_RUN	2
#define SLOT_COMPILE	3

static iso_interp *interp_of (lua_State *L) {
  return (iso_interp *)G(L)->ud;
}


static void *allocate (void *ud, void *old, size_t old_size, size_t size) {
  iso_interp *interp = (iso_interp *)ud;
  void *fresh;
  if (size == 0) {
    free(old);
    interp->used -= old_size;
    return NULL;
  }
  if (size > old_size && interp->limit != 0 && interp->used - old_size + size > interp->limit)
    return NULL;
  fresh = realloc(old, size);
  if (fresh == NULL)
    return NULL;
  interp->used += size - old_size;
  return fresh;
}


static void buffer_grow (lua_State *L, iso_buffer *buffer, size_t more) {
  size_t cap = buffer->cap < 128 ? 128 : buffer->cap;
  uint8_t *fresh;
  while (cap - buffer->len < more) {
    if (cap > SIZE_MAX / 4) luaD_throw(L, LUA_ERRMEM);
    cap *= 2;
  }
  fresh = (uint8_t *)allocate(interp_of(L), buffer->data, buffer->cap, cap);
  if (fresh == NULL) luaD_throw(L, LUA_ERRMEM);
  buffer->data = fresh;
  buffer->cap = cap;
}


/*
** Room for `more` bytes behind `len`; raises "not enough memory". Doubles, so appending is linear.
*/
static inline uint8_t *buffer_room (lua_State *L, iso_buffer *buffer, size_t more) {
  if (more > buffer->cap - buffer->len) buffer_grow(L, buffer, more);
  return buffer->data + buffer->len;
}


static void put_bytes (lua_State *L, iso_buffer *buffer, const void *bytes, size_t len) {
  uint8_t *room = buffer_room(L, buffer, len);
  if (len != 0) memcpy(room, bytes, len);
  buffer->len += len;
}


static void put_byte (lua_State *L, iso_buffer *buffer, int byte) {
  *buffer_room(L, buffer, 1) = (uint8_t)byte;
  buffer->len++;
}


/* The machine is little endian, as all that Isotherm runs on; a test compares the bytes. */
static void put_u64 (lua_State *L, iso_buffer *buffer, uint64_t value) {
  put_bytes(L, buffer, &value, 8);
}


static void buffer_release (iso_interp *interp, iso_buffer *buffer) {
  allocate(interp, buffer->data, buffer->cap, 0);
  buffer->data = NULL;
  buffer->len = buffer->cap = 0;
}


static void buffer_trim (iso_interp *interp, iso_buffer *buffer) {
  if (buffer->cap > BUFFER_KEPT_MAX) buffer_release(interp, buffer);
}


/*
** The frame number `depth` of a walk; raises "not enough memory".
*/
static walk_frame *frame_at (lua_State *L, size_t depth) {
  iso_interp *interp = interp_of(L);
  if (depth >= interp->frame_cap) {
    size_t cap = interp->frame_cap == 0 ? 16 : interp->frame_cap * 2;
    walk_frame *fresh = (walk_frame *)allocate(interp, interp->frames, interp->frame_cap * sizeof(walk_frame),
                                               cap * sizeof(walk_frame));
    if (fresh == NULL) luaD_throw(L, LUA_ERRMEM);
    interp->frames = fresh;
    interp->frame_cap = cap;
  }
  return &interp->frames[depth];
}


static void trim (iso_interp *interp) {
  buffer_trim(interp, &interp->request);
  buffer_trim(interp, &interp->debug_text);
  if (interp->span_cap * sizeof(iso_span) > BUFFER_KEPT_MAX) {
    allocate(interp, interp->spans, interp->span_cap * sizeof(iso_span), 0);
    interp->spans = NULL;
    interp->span_cap = 0;
  }
}


static int panicked (lua_State *L) {
  const char *text = lua_tostring(L, -1);
  fprintf(stderr, "an error of Lua outside of a protected call: %s\n", text == NULL ? "?" : text);
  abort();
  return 0;
}


/*
** A full collection, which must not fail: the limit is lifted, since the collector resizes the table of strings.
*/
static void collect_all (iso_interp *interp) {
  size_t limit = interp->limit;
  interp->limit = 0;
  lua_gc(interp->L, LUA_GCCOLLECT, 0);
  interp->limit = limit;
}


/*
** Between runs, a step for each so many kilobytes. Left alone, the collector waits until the memory has doubled, and short scripts let it
** swing by as much. As in Valkey.
*/
#define RUNS_PER_STEP 50

static void collect_some (iso_interp *interp) {
  size_t limit = interp->limit;
  if (++interp->runs < RUNS_PER_STEP) return;
  interp->runs = 0;
  interp->limit = 0;
  lua_gc(interp->L, LUA_GCSTEP, RUNS_PER_STEP);
  interp->limit = limit;
}


/*
** What one script leaves as garbage must not fail the next: before either is compiled or run, a quarter of the limit is free
** if it can be.
*/
static void collect_if_full (iso_interp *interp) {
  if (interp->limit != 0 && interp->used > interp->limit - interp->limit / 4) collect_all(interp);
}


size_t iso_used (const iso_interp *interp) {
  return interp->used;
}


void iso_collect (iso_interp *interp) {
  collect_all(interp);
}


/* Gives back the buffer in which a large result lay. */
void iso_trim (iso_interp *interp) {
  buffer_trim(interp, &interp->tape);
}


void iso_set_limit (iso_interp *interp, size_t memory_max) {
  interp->limit = memory_max;
  G(interp->L)->gcceiling = memory_max;
}


/*
** Collects first: finalizers and coroutines then end while all of the state stands (CVE-2024-46981).
*/
void iso_close (iso_interp *interp) {
  interp->limit = 0;
  if (interp->L != NULL) {
    lua_gc(interp->L, LUA_GCCOLLECT, 0);
    lua_close(interp->L);
  }
  buffer_release(interp, &interp->request);
  buffer_release(interp, &interp->tape);
  buffer_release(interp, &interp->debug_text);
  free(interp->spans);
  free(interp->frames);
  free(interp);
}
