/*
** The one translation unit: Lua, then the glue. build/main.rs compiles it beside the patched sources.
*/

#define luaall_c
#define LUA_CORE
#define LUA_LIB
#define LUA_ANSI

/* Before Lua's macros, one of which is called getline. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lapi.c"
#include "lcode.c"
#include "ldebug.c"
#include "ldo.c"
#include "ldump.c"
#include "lfunc.c"
#include "lgc.c"
#include "llex.c"
#include "lmem.c"
#include "lobject.c"
#include "lopcodes.c"
#include "lparser.c"
#include "lstate.c"
#include "lstring.c"
#include "ltable.c"
#include "ltm.c"
#include "lvm.c"
#include "lzio.c"

#include "lauxlib.c"

#include "lbaselib.c"
#include "lmathlib.c"
#include "lstrlib.c"
#include "ltablib.c"

#include "glue/state.c"
#include "glue/reply.c"
#include "glue/server_api.c"
#include "glue/result.c"
#include "glue/walk.c"
#include "glue/play.c"
#include "glue/library.c"
#include "glue/sandbox.c"
#include "glue/functions.c"
#include "glue/debug.c"
#include "glue/run.c"
