/*
** What a script finds: its globals, all of them read-only.
**
** Libraries add their names to the globals as Lua's do, and a metatable lets through only what the list names. So print,
** dofile, loadfile, require and the like never become reachable. Then the globals, every table that they reach and the
** metatables of the basic types become read-only, and a name that does not exist is an error.
**
** Names are added in the order in which Valkey adds them: it decides the order of pairs(_G).
*/

static const char *const global_names[] = {
  "string", "cjson", "bit", "cmsgpack", "math", "table", "struct", "os",
  "server", "redis", "__redis__err__handler", "__server__err__handler",
  "xpcall", "tostring", "setmetatable", "next", "assert", "tonumber", "rawequal", "collectgarbage", "getmetatable",
  "rawset", "pcall", "coroutine", "type", "_G", "select", "unpack", "gcinfo", "pairs", "rawget", "loadstring", "ipairs",
  "_VERSION", "load", "error", "debug",
};

/* Only with lua-enable-insecure-api. */
static const char *const insecure_names[] = {"newproxy", "setfenv", "getfenv"};

#define COUNT(list)	(sizeof(list) / sizeof((list)[0]))


static int is_listed (const char *const *list, size_t count, const char *name) {
  size_t i;
  for (i = 0; i < count; i++)
    if (strcmp(list[i], name) == 0) return 1;
  return 0;
}


/* __newindex of the globals while they are filled: (table, name, value). */
static int add_global (lua_State *L) {
  const char *name = luaL_checkstring(L, 2);
  if (is_listed(global_names, COUNT(global_names), name) ||
      (interp_of(L)->config->insecure_api && is_listed(insecure_names, COUNT(insecure_names), name)))
    lua_rawset(L, 1);
  return 0;
}


/* __index of the globals afterwards. */
static int missing_global (lua_State *L) {
  if (lua_gettop(L) != 2) return luaL_error(L, "Wrong number of arguments to luaProtectedTableError");
  if (!lua_isstring(L, 2)) return luaL_error(L, "Second argument to luaProtectedTableError must be a string or number");
  return luaL_error(L, "Script attempted to access nonexistent global variable '%s'", lua_tostring(L, 2));
}


static int os_clock_only (lua_State *L) {
  lua_pushnumber(L, (lua_Number)clock() / (lua_Number)CLOCKS_PER_SEC);
  return 1;
}


static const luaL_Reg os_functions[] = {{"clock", os_clock_only}, {NULL, NULL}};


/*
** math.random: the generator of lrand48 with one state for each interpreter, so that a sequence does not depend on the
** machine. X' = X * 0x5deece66d + 11 mod 2^48; a number is the upper 31 bits.
*/
#define RANDOM_START	UINT64_C(0x1234abcd330e)
#define RANDOM_MAX	2147483647

static int math_random_fixed (lua_State *L) {
  iso_interp *interp = interp_of(L);
  lua_Number r;
  interp->random = (interp->random * UINT64_C(0x5deece66d) + 11) & UINT64_C(0xffffffffffff);
  r = (lua_Number)((interp->random >> 17) % RANDOM_MAX) / (lua_Number)RANDOM_MAX;
  switch (lua_gettop(L)) {
    case 0:
      lua_pushnumber(L, r);
      break;
    case 1: {
      int u = luaL_checkint(L, 1);
      luaL_argcheck(L, 1 <= u, 1, "interval is empty");
      lua_pushnumber(L, floor(r * u) + 1);
      break;
    }
    case 2: {
      int l = luaL_checkint(L, 1);
      int u = luaL_checkint(L, 2);
      luaL_argcheck(L, l <= u, 2, "interval is empty");
      /* in two's complement, as it is counted there: the whole range of int is 0 wide */
      lua_pushnumber(L, floor(r * (lua_Number)(int)((unsigned)u - (unsigned)l + 1u)) + l);
      break;
    }
    default:
      return luaL_error(L, "wrong number of arguments");
  }
  return 1;
}


static int math_randomseed_fixed (lua_State *L) {
  interp_of(L)->random = ((uint64_t)(uint32_t)luaL_checkint(L, 1) << 16) | (RANDOM_START & 0xffff);
  return 0;
}


/*
** collectgarbage: Lua's. A script that tunes or stops the collector does it for itself alone; the run's end restores it.
*/
static int base_collectgarbage (lua_State *L) {
  interp_of(L)->collector_touched = 1;
  return luaB_collectgarbage(L);
}


static void open_library (lua_State *L, const char *name, lua_CFunction open) {
  lua_pushcfunction(L, open);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}


static void open_libraries (lua_State *L) {
  const iso_config *config = interp_of(L)->config;
  size_t i;
  open_library(L, "", luaopen_base);
  open_library(L, LUA_TABLIBNAME, luaopen_table);
  open_library(L, LUA_STRLIBNAME, luaopen_string);
  open_library(L, LUA_MATHLIBNAME, luaopen_math);
  lua_pushboolean(L, 1);  /* where Valkey has its debug library for a moment */
  lua_setglobal(L, "debug");
  luaL_register(L, "os", os_functions);
  lua_pop(L, 1);
  for (i = 0; i < config->library_count; i++) {
    push_text(L, config->libraries[i].name);
    push_library(L, (uint32_t)i, 0);
    lua_settable(L, LUA_GLOBALSINDEX);
  }
}


static void set_function (lua_State *L, const char *name, lua_CFunction function) {
  lua_pushcfunction(L, function);
  lua_setfield(L, -2, name);
}


static void set_number (lua_State *L, const char *name, lua_Number number) {
  lua_pushnumber(L, number);
  lua_setfield(L, -2, name);
}


static void set_text (lua_State *L, const char *name, iso_bytes text) {
  push_text(L, text);
  lua_setfield(L, -2, name);
}


/* What a library finds while it loads, too. */
static void set_log_and_versions (lua_State *L) {
  const iso_config *config = interp_of(L)->config;
  set_function(L, "log", server_log);
  set_number(L, "LOG_DEBUG", 0);
  set_number(L, "LOG_VERBOSE", 1);
  set_number(L, "LOG_NOTICE", 2);
  set_number(L, "LOG_WARNING", 3);
  set_number(L, "REDIS_VERSION_NUM", config->redis_version_num);
  set_text(L, "REDIS_VERSION", config->redis_version);
  set_number(L, "VALKEY_VERSION_NUM", config->valkey_version_num);
  set_text(L, "VALKEY_VERSION", config->valkey_version);
  set_text(L, "SERVER_NAME", config->server_name);
}


static void make_server_table (lua_State *L) {
  lua_newtable(L);
  set_function(L, "call", server_call);
  set_function(L, "pcall", server_pcall);
  set_log_and_versions(L);
  set_function(L, "setresp", server_setresp);
  set_function(L, "sha1hex", server_sha1hex);
  set_function(L, "error_reply", server_error_reply);
  set_function(L, "status_reply", server_status_reply);
  set_function(L, "set_repl", server_set_repl);
  set_number(L, "REPL_NONE", 0);
  set_number(L, "REPL_AOF", REPL_AOF);
  set_number(L, "REPL_SLAVE", REPL_REPLICA);
  set_number(L, "REPL_REPLICA", REPL_REPLICA);
  set_number(L, "REPL_ALL", REPL_AOF | REPL_REPLICA);
  set_function(L, "acl_check_cmd", server_acl_check_cmd);
  lua_setglobal(L, "server");
  lua_getglobal(L, "server");
  lua_setglobal(L, "redis");
}


static void replace_functions (lua_State *L) {
  lua_getglobal(L, "math");
  set_function(L, "random", math_random_fixed);
  set_function(L, "randomseed", math_randomseed_fixed);
  lua_pop(L, 1);
  lua_pushcfunction(L, base_collectgarbage);
  lua_setglobal(L, "collectgarbage");
}


static void make_eval_functions (lua_State *L) {
  lua_getglobal(L, "server");
  set_function(L, "breakpoint", server_breakpoint);
  set_function(L, "debug", server_debug);
  set_function(L, "replicate_commands", server_replicate_commands);
  lua_pop(L, 1);
  lua_pushvalue(L, SLOT_HANDLER);
  lua_setglobal(L, "__server__err__handler");
  lua_getglobal(L, "__server__err__handler");
  lua_setglobal(L, "__redis__err__handler");
}


/* The table on top, all tables in it and their metatables. */
static void lock_table (lua_State *L) {
  if (lua_isreadonlytable(L, -1)) return;
  lua_enablereadonlytable(L, -1, 1);
  luaL_checkstack(L, 4, "globals");
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    if (lua_istable(L, -1)) lock_table(L);
    lua_pop(L, 1);
  }
  if (lua_getmetatable(L, -1)) {
    lock_table(L);
    lua_pop(L, 1);
  }
}


/* Only strings have one; the others are looked at so that a change of Lua's libraries is not overlooked. */
static void lock_metatables_of_types (lua_State *L) {
  int type;
  for (type = 0; type < NUM_TAGS; type++) {
    Table *metatable = G(L)->mt[type];
    if (metatable == NULL) continue;
    sethvalue(L, L->top, metatable);
    incr_top(L);
    lock_table(L);
    lua_pop(L, 1);
  }
}


/* A name that the table on top does not have is an error. */
static void set_missing_error (lua_State *L) {
  lua_newtable(L);
  set_function(L, "__index", missing_global);
  lua_setmetatable(L, -2);
}


static void lock_globals (lua_State *L) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  set_missing_error(L);
  lock_table(L);
  lua_pop(L, 1);
  lock_metatables_of_types(L);
}


/* KEYS and ARGV exist from the start, so that to set them allocates nothing in the globals: see set_open_global. */
static void set_global_table (lua_State *L, const char *name) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_pushstring(L, name);
  lua_newtable(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}


static void make_sandbox (lua_State *L) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_newtable(L);
  set_function(L, "__newindex", add_global);
  lua_setmetatable(L, -2);
  lua_pop(L, 1);

  open_libraries(L);
  lua_pushcfunction(L, base_pcall);
  lua_setglobal(L, "pcall");
  make_server_table(L);
  replace_functions(L);
  lua_pushnil(L);
  lua_setglobal(L, "debug");
  if (!interp_of(L)->runs_functions) {
    make_eval_functions(L);
    set_global_table(L, "KEYS");
    set_global_table(L, "ARGV");
  }
  lock_globals(L);
  /* what a script gets in these two is its own, and a new table each time */
}
