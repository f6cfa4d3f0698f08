/*
** The interpreter as Rust sees it, and Rust as the interpreter sees it.
**
**   Rust: Interpreter --iso_run--> C: run_body --lua_pcall--> the script
**                                                               |
**   Rust: Bridge <--iso_calls.call-- C: server_call <-----------+
**
** Errors of Lua are longjmps. They may pass C frames of these files and of Lua, never a Rust frame: a function of
** `iso_calls` gets bytes, returns, and does not touch the lua_State. No frame here owns memory that an error would
** leak: buffers belong to `iso_interp`.
**
** All C of this crate is one translation unit (build.rs writes it), so everything below but the iso_* functions is static.
*/

#ifndef iso_glue_h
#define iso_glue_h

#include <stddef.h>
#include <stdint.h>

/* A part of a request, as isotherm_resp::Span. */
typedef struct iso_span {
  uint32_t start;
  uint32_t len;
} iso_span;

typedef struct iso_bytes {
  const uint8_t *data;
  size_t len;
} iso_bytes;

/* A buffer that grows; `iso_interp` owns it. */
typedef struct iso_buffer {
  uint8_t *data;
  size_t len;
  size_t cap;
} iso_buffer;

/* What Rust does for a script. `bridge` is what iso_run was given. */
typedef struct iso_calls {
  /* runs a command; `reply` is RESP of protocol `resp`, and stays until the next function is called */
  void (*call)(void *bridge, iso_bytes wire, const iso_span *spans, size_t count, int resp, iso_bytes *reply);
  /* 1: may run, 0: may not, -1: no such command */
  int (*may_run)(void *bridge, iso_bytes wire, const iso_span *spans, size_t count);
  void (*set_replication)(void *bridge, uint8_t flags);
  void (*log)(void *bridge, uint8_t level, iso_bytes text);
  /* ISO_GO_ON, ISO_STOP, ISO_GO_ON_OFTEN; the run may have been suspended meanwhile */
  int (*checkpoint)(void *bridge);
  /* the text of a number that is no integer; at most ISO_NUMBER_BYTES_MAX */
  size_t (*number_text)(double value, uint8_t *text);
  void (*sha1hex)(iso_bytes text, uint8_t *digits);
  /* how deep the arguments of a library's function are walked: see ISO_DEPTH_* */
  uint32_t (*library_depth)(void *bridge, uint32_t function, uint32_t instance);
  /* 0: `out` is a tape of results; else ISO_ERROR_*: a text */
  uint32_t (*library_call)(void *bridge, uint32_t function, uint32_t instance, iso_bytes args, size_t arg_count,
                           iso_bytes *out);
  /* of a run that is debugged: it has come to a line; 1: it stops there */
  int (*debug_reach)(void *bridge, int line, int is_its_own);
  /* ISO_DEBUG_*: what is done where it has stopped; the run may have been suspended meanwhile. `text` stays until the next call of it */
  int (*debug_next)(void *bridge, iso_bytes *text);
  /* a word of the command for ISO_DEBUG_CALL; 0 behind the last */
  int (*debug_word)(void *bridge, size_t number, iso_bytes *word);
  /* ISO_LOG_*; `line` is that of a function for ISO_LOG_FRAME */
  void (*debug_log)(void *bridge, int kind, iso_bytes text, int line);
  /* the line that it stands at, for redis.debug(); redis.breakpoint(), if `breaks` */
  int (*debug_line)(void *bridge, int breaks);
} iso_calls;

#define ISO_GO_ON	0
#define ISO_STOP	1
#define ISO_GO_ON_OFTEN	2

/* debug_next */
#define ISO_DEBUG_GO_ON		0
#define ISO_DEBUG_STOP		1	/* as ISO_STOP */
#define ISO_DEBUG_FAIL		2	/* an error with this text */
#define ISO_DEBUG_PRINT_ALL	3
#define ISO_DEBUG_PRINT		4	/* the variable with this name */
#define ISO_DEBUG_TRACE		5
#define ISO_DEBUG_EVAL		6	/* this code */
#define ISO_DEBUG_CALL		7	/* the words of debug_word */

/* debug_log */
#define ISO_LOG_LINE	0
#define ISO_LOG_ERROR	1	/* while it steps */
#define ISO_LOG_FRAME	2

#define ISO_NUMBER_BYTES_MAX	64
#define ISO_SHA_DIGITS		40

/* library_call: an error behind its place in the script, or as it is, or what is wrong with argument n: ISO_ERROR_ARGUMENT + n */
#define ISO_ERROR_PLACED	1
#define ISO_ERROR_PLAIN		2
#define ISO_ERROR_ARGUMENT	3

/* library_depth: a number of levels; with ISO_DEPTH_END no table is followed behind the first that is too deep */
#define ISO_DEPTH_LEVELS	0xffffu
#define ISO_DEPTH_END		0x10000u

/* A constant of a library's table. */
typedef struct iso_constant {
  iso_bytes name;
  int type;		/* LUA_TSTRING, LUA_TNUMBER or LUA_TLIGHTUSERDATA (NULL) */
  double number;
  iso_bytes text;
} iso_constant;

typedef struct iso_library {
  iso_bytes name;
  const iso_bytes *functions;
  size_t function_count;
  uint32_t function_first;	/* the number of its first function among those of all libraries */
  const iso_constant *constants;
  size_t constant_count;
} iso_library;

/* What iso_open needs; `libraries` and `calls` live as long as the interpreter. */
typedef struct iso_config {
  size_t memory_max;		/* 0: no limit */
  int insecure_api;
  int runs_functions;		/* of libraries, and no scripts: functions.c */
  iso_bytes server_name;
  iso_bytes redis_version;
  uint32_t redis_version_num;
  iso_bytes valkey_version;
  uint32_t valkey_version_num;
  const iso_library *libraries;
  size_t library_count;
  const iso_calls *calls;
} iso_config;

/* How iso_run ended; for all but ISO_RAN the result is an error. */
#define ISO_RAN		0
#define ISO_FAILED	1
#define ISO_STOPPED	2

/*
** The result of a run as tokens, numbers little endian:
**   1 u64 len, bytes       a bulk string         7 f64                a double
**   2 i64                  an integer            8 u64 len, bytes     a big number
**   3                      null                  9 u64 len, bytes, u64 len, bytes   verbatim: format, text
**   4 u8                   a boolean            10 u64 n              an array of n values
**   5 u8 counted, u64 len, bytes   an error     11 u64 n              a map of n pairs
**   6 u64 len, bytes       a status             12 u64 n              a set of n values
*/
#define ISO_BULK	1
#define ISO_INTEGER	2
#define ISO_NULL	3
#define ISO_BOOLEAN	4
#define ISO_ERROR	5
#define ISO_STATUS	6
#define ISO_DOUBLE	7
#define ISO_BIG_NUMBER	8
#define ISO_VERBATIM	9
#define ISO_ARRAY	10
#define ISO_MAP		11
#define ISO_SET		12

typedef struct iso_interp iso_interp;

iso_interp *iso_open(const iso_config *config);
void iso_close(iso_interp *interp);
size_t iso_used(const iso_interp *interp);
void iso_set_limit(iso_interp *interp, size_t memory_max);
/* a reference to the compiled function, or -1: then `result` is the error's text */
int iso_compile(iso_interp *interp, iso_bytes text, iso_bytes *result);
void iso_forget(iso_interp *interp, int reference);
void iso_collect(iso_interp *interp);
/* what `result` points to is gone */
void iso_trim(iso_interp *interp);
/* the next run is debugged */
void iso_debug(iso_interp *interp);
/*
** Runs on a stack of its own. Rust may leave that stack and come back to it in `calls->call`, `calls->checkpoint` and
** `calls->debug_next`; `bytes` and `spans` are read before these are called first. Until it has returned, no function but iso_used and iso_set_limit may be called.
*/
int iso_run(iso_interp *interp, int reference, iso_bytes bytes, const iso_span *spans, size_t key_count,
            size_t arg_count, void *bridge, iso_bytes *result);

/*
** Where functions are run: runs the code of a library, which registers its functions. 1: `result` is a list of them, for each
**   u64 len, bytes: its name    u8: whether it has a description    u64 len, bytes: that    u64 flags    u64 reference
** 0: `result` is the text of the error, and nothing is left of the library.
*/
int iso_load(iso_interp *interp, iso_bytes code, void *bridge, iso_bytes *result);

/* For the test that compares the constants of both sides. */
size_t iso_constants(uint32_t *out, size_t max);

#endif
