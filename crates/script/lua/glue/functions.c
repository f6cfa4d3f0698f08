/*
** Libraries of functions: their code is run once, and registers functions, which are called later.
**
**   globals --> window {} --metatable.__index--> what a library finds while it loads: server.register_function, log, versions
**                                           '--> what functions find when they run: as a script, less a few names
**
** A library's code and its functions have the window as their globals, which is empty and read-only: so the same name means
** one thing while a library loads and another when its functions run, as in Valkey. The __index of its metatable is changed
** here alone. No library can put anything where another finds it.
*/

#define REGISTERED_BYTES_MAX	((size_t)64 * 1024 * 1024)
#define LOAD_STOPPED		"FUNCTION LOAD timeout"

static void count_hook (lua_State *L, lua_Debug *unused);

/* Bit n of a function's flags is flag n of these. */
static const char *const flag_names[] = {
  "no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys",
};

/* Where a registration has its parts on the stack. */
#define PART_NAME	2
#define PART_DESCRIPTION	3
#define PART_CALLBACK	4


/* ASCII letters count as equal in both cases. */
static int same_word (const char *a, const char *b) {
  for (; *a != 0 && *b != 0; a++, b++) {
    int left = *a >= 'A' && *a <= 'Z' ? *a + 32 : *a;
    int right = *b >= 'A' && *b <= 'Z' ? *b + 32 : *b;
    if (left != right) return 0;
  }
  return *a == *b;
}


/* The flag with this name as a bit, or 0. */
static uint64_t flag_of (const char *name) {
  size_t i;
  for (i = 0; i < COUNT(flag_names); i++)
    if (same_word(flag_names[i], name)) return UINT64_C(1) << i;
  return 0;
}


/* The list on top; it stays there. */
static uint64_t read_flags (lua_State *L) {
  uint64_t flags = 0, flag;
  int i;
  for (i = 1; ; i++) {
    lua_rawgeti(L, -1, i);
    if (lua_isnil(L, -1)) break;
    flag = lua_isstring(L, -1) ? flag_of(lua_tostring(L, -1)) : 0;
    if (flag == 0) raise_error_text(L, "unknown flag given");
    flags |= flag;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return flags;
}


/* The value on top, with its name below, goes to its place. */
static uint64_t read_named_part (lua_State *L, const char *name, uint64_t flags) {
  if (same_word(name, "function_name")) {
    if (lua_tostring(L, -1) == NULL)
      raise_error_text(L, "function_name argument given to server.register_function must be a string");
    lua_replace(L, PART_NAME);
  } else if (same_word(name, "description")) {
    if (lua_tostring(L, -1) == NULL)
      raise_error_text(L, "description argument given to server.register_function must be a string");
    lua_replace(L, PART_DESCRIPTION);
  } else if (same_word(name, "callback")) {
    if (!lua_isfunction(L, -1))
      raise_error_text(L, "callback argument given to server.register_function must be a function");
    lua_replace(L, PART_CALLBACK);
  } else if (same_word(name, "flags")) {
    if (!lua_istable(L, -1))
      raise_error_text(L, "flags argument to server.register_function must be a table representing function flags");
    flags = read_flags(L);
    lua_pop(L, 1);
  } else
    raise_error_text(L, "unknown argument given to server.register_function");
  return flags;
}


/* {function_name = ..., callback = ..., description = ..., flags = {...}} */
static uint64_t read_named (lua_State *L) {
  uint64_t flags = 0;
  if (!lua_istable(L, 1))
    raise_error_text(L, "calling server.register_function with a single argument is only applicable to Lua table "
                        "(representing named arguments).");
  lua_settop(L, PART_CALLBACK);
  lua_pushnil(L);
  while (lua_next(L, 1) != 0) {
    if (!lua_isstring(L, -2))
      raise_error_text(L, "named argument key given to server.register_function is not a string");
    /* a number is not turned into a string here: lua_next would lose its place */
    flags = read_named_part(L, lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "", flags);
  }
  if (lua_isnil(L, PART_NAME))
    raise_error_text(L, "server.register_function must get a function name argument");
  if (lua_isnil(L, PART_CALLBACK))
    raise_error_text(L, "server.register_function must get a callback argument");
  return flags;
}


static void read_positional (lua_State *L) {
  if (lua_tostring(L, 1) == NULL)
    raise_error_text(L, "first argument to server.register_function must be a string");
  if (!lua_isfunction(L, 2))
    raise_error_text(L, "second argument to server.register_function must be a function");
  lua_settop(L, PART_CALLBACK);
  lua_pushvalue(L, 2);
  lua_replace(L, PART_CALLBACK);
  lua_pushvalue(L, 1);
  lua_replace(L, PART_NAME);
  lua_pushnil(L);
  lua_replace(L, PART_DESCRIPTION);
}


static void put_text (lua_State *L, iso_buffer *list, const char *text, size_t len) {
  put_u64(L, list, len);
  put_bytes(L, list, text, len);
}


/* Room for all of it first: a reference that is not in the list would be lost. */
static void put_registered (lua_State *L, iso_buffer *list, uint64_t flags) {
  size_t name_len, description_len = 0;
  const char *name = lua_tolstring(L, PART_NAME, &name_len);
  const char *description = lua_tolstring(L, PART_DESCRIPTION, &description_len);
  int reference;
  if (name_len > REGISTERED_BYTES_MAX || description_len > REGISTERED_BYTES_MAX ||
      list->len > REGISTERED_BYTES_MAX)
    luaD_throw(L, LUA_ERRMEM);
  buffer_room(L, list, name_len + description_len + 4 * 8 + 1);
  lua_pushvalue(L, PART_CALLBACK);
  reference = luaL_ref(L, LUA_REGISTRYINDEX);
  put_text(L, list, name, name_len);
  put_byte(L, list, description != NULL);
  put_text(L, list, description, description_len);
  put_u64(L, list, flags);
  put_u64(L, list, (uint64_t)reference);
}


static int server_register_function (lua_State *L) {
  iso_interp *interp = interp_of(L);
  uint64_t flags = 0;
  if (!interp->loads)
    return raise_error_text(L, "server.register_function can only be called on FUNCTION LOAD command");
  switch (lua_gettop(L)) {
    case 1:
      flags = read_named(L);
      break;
    case 2:
      read_positional(L);
      break;
    default:
      return raise_error_text(L, "wrong number of arguments to server.register_function");
  }
  put_registered(L, &interp->tape, flags);
  return 0;
}


/* Behind make_sandbox: the globals become the window. */
static void make_library_globals (lua_State *L) {
  iso_interp *interp = interp_of(L);
  lua_newtable(L);
  lua_newtable(L);
  set_function(L, "register_function", server_register_function);
  set_log_and_versions(L);
  set_missing_error(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "server");
  lua_setfield(L, -2, "redis");
  set_missing_error(L);
  lock_table(L);
  interp->library_globals = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  interp->function_globals = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_setfield(L, -2, "__index");
  lua_enablereadonlytable(L, -1, 1);
  lua_setmetatable(L, -2);
  lua_enablereadonlytable(L, -1, 1);
  lua_replace(L, LUA_GLOBALSINDEX);
}


/* What the window shows. Nothing is allocated: the field and its name are there. */
static void show_globals (lua_State *L, int reference) {
  if (!lua_getmetatable(L, LUA_GLOBALSINDEX)) return;
  lua_enablereadonlytable(L, -1, 0);
  lua_rawgeti(L, LUA_REGISTRYINDEX, reference);
  lua_setfield(L, -2, "__index");
  lua_enablereadonlytable(L, -1, 1);
  lua_pop(L, 1);
}


/* The functions in the list are forgotten. */
static void forget_registered (lua_State *L, const iso_buffer *list) {
  size_t at = 0;
  while (at < list->len) {
    uint64_t len, reference;
    memcpy(&len, list->data + at, 8);
    at += 8 + (size_t)len + 1;
    memcpy(&len, list->data + at, 8);
    at += 8 + (size_t)len + 8;
    memcpy(&reference, list->data + at, 8);
    at += 8;
    luaL_unref(L, LUA_REGISTRYINDEX, (int)reference);
  }
}


typedef struct load_args {
  iso_bytes code;
  const char *failed;	/* what an error is about */
} load_args;


static int load_body (lua_State *L) {
  load_args *args = (load_args *)lua_touserdata(L, 1);
  iso_interp *interp = interp_of(L);
  args->failed = "Error compiling function: ";
  if (luaL_loadbuffer(L, (const char *)args->code.data, args->code.len, "@user_function") != 0)
    return lua_error(L);
  args->failed = "Error registering functions: ERR ";
  interp->tape.len = 0;
  lua_sethook(L, count_hook, LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
  lua_call(L, 0, 0);
  return 0;
}


/* The error on top: a text of Lua, or a table of ours, whose text has its own code. No metamethod is asked. */
static void put_load_error (lua_State *L, iso_buffer *out, const char *failed) {
  const char *text = "unknown error";
  size_t len = strlen(text), prefix = strlen(failed);
  if (lua_istable(L, -1) && raw_field(L, "err") == LUA_TSTRING) {
    text = lua_tolstring(L, -1, &len);
    if (len >= 4 && memcmp(text, "ERR ", 4) == 0) prefix -= 4;
  } else if (lua_type(L, -1) == LUA_TSTRING)
    text = lua_tolstring(L, -1, &len);
  put_bytes(L, out, failed, prefix);
  put_bytes(L, out, text, len);
}


int iso_load (iso_interp *interp, iso_bytes code, void *bridge, iso_bytes *result) {
  lua_State *L = interp->L;
  load_args args = {code, ""};
  const char *stop_text = interp->stop_text;
  size_t limit;
  int status;
  collect_if_full(interp);
  interp->bridge = bridge;
  interp->resp = 2;
  interp->stopped = 0;
  interp->loads = 1;
  interp->stop_text = LOAD_STOPPED;
  interp->tape.len = 0;
  show_globals(L, interp->library_globals);
  lua_pushvalue(L, SLOT_COMPILE);
  lua_pushlightuserdata(L, &args);
  status = lua_pcall(L, 1, 0, 0);
  lua_sethook(L, NULL, 0, 0);
  limit = interp->limit;
  interp->limit = 0;
  if (status != 0) {
    forget_registered(L, &interp->tape);
    interp->tape.len = 0;
    put_load_error(L, &interp->tape, args.failed);
  }
  lua_settop(L, SLOT_COMPILE);
  show_globals(L, interp->function_globals);
  interp->limit = limit;
  interp->loads = 0;
  interp->stop_text = stop_text;
  interp->bridge = NULL;
  if (status != 0) collect_all(interp);
  trim(interp);
  result->data = interp->tape.data;
  result->len = interp->tape.len;
  return status == 0;
}
