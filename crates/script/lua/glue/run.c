/*
** Opening an interpreter, compiling a script, running it.
**
** A run is one call of `run_body` in protected mode, which calls the script in protected mode with the error handler: so
** running out of memory while KEYS is made, or while the result is turned into tokens, is an error like others.
*/

/*
** Where the function of a level is, or its caller if it is one of C; 0 if there is no such function.
*/
static int place_of (lua_State *L, int level, lua_Debug *info) {
  if (!lua_getstack(L, level, info)) return 0;
  lua_getinfo(L, "nSl", info);
  if (strcmp(info->what, "C") != 0) return 1;
  if (!lua_getstack(L, level + 1, info)) return 0;
  lua_getinfo(L, "nSl", info);
  return 1;
}


/* Into the table at `index`. */
static void set_place (lua_State *L, int index, const lua_Debug *info) {
  lua_pushstring(L, info->source);
  lua_setfield(L, index, "source");
  lua_pushinteger(L, info->currentline);
  lua_setfield(L, index, "line");
}


/*
** What becomes of an error before the stack unwinds: a table with the text, and the source and line of the function that
** raised it, or of its caller if that is a C function.
*/
static int error_handler (lua_State *L) {
  lua_Debug info;
  int found;
  lua_settop(L, 1);
  found = place_of(L, 1, &info);
  if (lua_type(L, 1) != LUA_TTABLE) {
    lua_pushliteral(L, "ERR ");
    lua_pushcfunction(L, luaB_tostring);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_concat(L, 2);
    lua_createtable(L, 0, 1);
    lua_insert(L, -2);
    lua_setfield(L, -2, "err");
    lua_replace(L, 1);
  }
  if (found) set_place(L, 1, &info);
  return 1;
}


/*
** Once the script is to end the error is raised again at each instruction, so that no pcall, coroutine or callback goes on.
** No error handler is called: within a hook no hook is, so that a handler of xpcall that loops could not be stopped.
*/
static void count_hook (lua_State *L, lua_Debug *unused) {
  iso_interp *interp = interp_of(L);
  (void)unused;
  if (!interp->stopped) {
    int word = interp->bridge == NULL ? ISO_GO_ON : interp->calls->checkpoint(interp->bridge);
    if (word == ISO_GO_ON_OFTEN) lua_sethook(L, count_hook, LUA_MASKCOUNT, HOOK_OFTEN);
    if (word != ISO_STOP) return;
  }
  stop_run(L);
}


static void stop_run (lua_State *L) {
  iso_interp *interp = interp_of(L);
  lua_Debug info;
  if (!interp->stopped) {
    interp->stopped = 1;
    lua_sethook(interp->L, count_hook, LUA_MASKCOUNT | LUA_MASKLINE, 1);
  }
  lua_sethook(L, count_hook, LUA_MASKCOUNT | LUA_MASKLINE, 1);
  push_error_text(L, interp->stop_text, strlen(interp->stop_text));
  if (place_of(L, 0, &info)) set_place(L, lua_gettop(L), &info);
  L->errfunc = 0;
  lua_error(L);
}



typedef struct run_args {
  int reference;
  const uint8_t *bytes;
  const iso_span *spans;
  size_t key_count;
  size_t arg_count;
  int status;
} run_args;


static void push_strings (lua_State *L, const run_args *args, size_t from, size_t count) {
  size_t i;
  lua_createtable(L, (int)count, 0);
  for (i = 0; i < count; i++) {
    const iso_span *span = &args->spans[from + i];
    lua_pushlstring(L, (const char *)args->bytes + span->start, span->len);
    lua_rawseti(L, -2, (int)i + 1);
  }
}


/*
** Pops a table into a global that exists. The globals are read-only for scripts, not here; nothing is allocated, and no
** metamethod is asked.
*/
static void set_open_global (lua_State *L, const TString *name) {
  Table *globals = hvalue(gt(L));
  TValue *slot = cast(TValue *, luaH_getstr(globals, cast(TString *, name)));
  lua_assert(slot != luaO_nilobject);
  setobj2t(L, slot, L->top - 1);
  luaC_barriert(L, globals, L->top - 1);
  L->top--;
}


/* The error on top, as the handler left it. */
static void put_run_error (lua_State *L, iso_buffer *out) {
  const char *err, *source, *line;
  int counted;
  if (!lua_istable(L, -1)) {
    const char *text = lua_isstring(L, -1) ? lua_tostring(L, -1) : "execution failure";
    lua_pushfstring(L, "ERR Error running script, %s", text);
    put_error(L, out, lua_tostring(L, -1), 0);
    return;
  }
  lua_getfield(L, -1, "err");
  err = lua_isstring(L, -1) ? lua_tostring(L, -1) : "ERR unknown error";
  lua_getfield(L, -2, "source");
  source = lua_isstring(L, -1) ? lua_tostring(L, -1) : NULL;
  lua_getfield(L, -3, "line");
  line = lua_isstring(L, -1) ? lua_tostring(L, -1) : NULL;
  lua_getfield(L, -4, "ignore_error_stats_update");
  counted = is_true_boolean(L, -1);
  if (source != NULL && line != NULL) {
    lua_pushfstring(L, "%s script: on %s:%s.", err, source, line);
    err = lua_tostring(L, -1);
  }
  put_error(L, out, err, counted);
}


static int run_body (lua_State *L) {
  iso_interp *interp = interp_of(L);
  run_args *args = (run_args *)lua_touserdata(L, 1);
  luaL_checkstack(L, 20, "script");
  lua_rawgeti(L, LUA_REGISTRYINDEX, interp->handler);
  lua_rawgeti(L, LUA_REGISTRYINDEX, args->reference);
  push_strings(L, args, 0, args->key_count);
  if (!interp->runs_functions) set_open_global(L, interp->keys_name);
  push_strings(L, args, args->key_count, args->arg_count);
  if (!interp->runs_functions) set_open_global(L, interp->argv_name);
  if (interp->debugs)
    lua_sethook(L, debug_hook, LUA_MASKLINE | LUA_MASKCOUNT, HOOK_OFTEN);
  else
    lua_sethook(L, count_hook, LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
  args->status = lua_pcall(L, interp->runs_functions ? 2 : 0, 1, 2);
  interp->tape.len = 0;
  if (args->status != 0)
    put_run_error(L, &interp->tape);  /* with the hook: a metamethod of the error may loop */
  else {
    lua_remove(L, 1);  /* Valkey's stack has two values here, and so is as deep */
    put_result(L, &interp->tape);
  }
  return 0;
}


/*
** What is left of an error that was raised outside of the script itself. Nothing catches another one here, so no metamethod
** may run: the table may be a script's.
*/
static void put_outer_error (lua_State *L, iso_interp *interp) {
  size_t limit = interp->limit;
  interp->limit = 0;
  interp->tape.len = 0;
  if (lua_istable(L, -1) && raw_field(L, "err") == LUA_TSTRING)
    put_error(L, &interp->tape, lua_tostring(L, -1), 0);
  else {
    char text[160];
    const char *why = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "execution failure";
    snprintf(text, sizeof(text), "ERR Error running script, %.100s", why);
    put_error(L, &interp->tape, text, 0);
  }
  interp->limit = limit;
}


static void restore_collector (iso_interp *interp) {
  lua_State *L = interp->L;
  lua_gc(L, LUA_GCSETPAUSE, LUAI_GCPAUSE);
  lua_gc(L, LUA_GCSETSTEPMUL, LUAI_GCMUL);
  lua_gc(L, LUA_GCRESTART, 0);
  interp->collector_touched = 0;
}


int iso_run (iso_interp *interp, int reference, iso_bytes bytes, const iso_span *spans, size_t key_count,
             size_t arg_count, void *bridge, iso_bytes *result) {
  lua_State *L = interp->L;
  run_args args = {reference, bytes.data, spans, key_count, arg_count, 0};
  int status;
  collect_if_full(interp);
  interp->bridge = bridge;
  interp->resp = 2;
  interp->stopped = 0;
  interp->debug_counts = 0;
  lua_pushvalue(L, SLOT_RUN);
  lua_pushlightuserdata(L, &args);
  status = lua_pcall(L, 1, 0, 0);
  lua_sethook(L, NULL, 0, 0);
  if (status != 0)
    put_outer_error(L, interp);
  lua_settop(L, SLOT_COMPILE);
  interp->bridge = NULL;
  interp->debugs = 0;
  if (interp->collector_touched) restore_collector(interp);
  if (status == LUA_ERRMEM || args.status == LUA_ERRMEM) collect_all(interp);
  else collect_some(interp);
  trim(interp);
  result->data = interp->tape.data;
  result->len = interp->tape.len;
  if (interp->stopped) return ISO_STOPPED;
  return status == 0 && args.status == 0 ? ISO_RAN : ISO_FAILED;
}


void iso_debug (iso_interp *interp) {
  interp->debugs = 1;
}


typedef struct compile_args {
  iso_bytes text;
  int reference;
} compile_args;


static int compile_body (lua_State *L) {
  compile_args *args = (compile_args *)lua_touserdata(L, 1);
  if (luaL_loadbuffer(L, (const char *)args->text.data, args->text.len, "@user_script") != 0)
    return lua_error(L);
  args->reference = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}


int iso_compile (iso_interp *interp, iso_bytes text, iso_bytes *result) {
  lua_State *L = interp->L;
  compile_args args = {text, -1};
  int status;
  collect_if_full(interp);
  lua_pushvalue(L, SLOT_COMPILE);
  lua_pushlightuserdata(L, &args);
  status = lua_pcall(L, 1, 0, 0);
  if (status == 0) return args.reference;
  interp->tape.len = 0;
  result->data = (const uint8_t *)lua_tolstring(L, -1, &result->len);
  if (result->data != NULL) {
    size_t limit = interp->limit;
    interp->limit = 0;
    put_bytes(L, &interp->tape, result->data, result->len);
    interp->limit = limit;
  }
  result->data = interp->tape.data;
  result->len = interp->tape.len;
  lua_settop(L, SLOT_COMPILE);
  if (status == LUA_ERRMEM) collect_all(interp);
  return -1;
}


/* Needs no protected call: the registry has had this slot before. */
void iso_forget (iso_interp *interp, int reference) {
  size_t limit = interp->limit;
  interp->limit = 0;
  luaL_unref(interp->L, LUA_REGISTRYINDEX, reference);
  interp->limit = limit;
}


static int open_body (lua_State *L) {
  lua_settop(L, 0);
  lua_pushcfunction(L, error_handler);
  lua_pushvalue(L, SLOT_HANDLER);
  interp_of(L)->handler = luaL_ref(L, LUA_REGISTRYINDEX);
  make_sandbox(L);
  if (interp_of(L)->runs_functions) make_library_globals(L);
  interp_of(L)->keys_name = luaS_newliteral(L, "KEYS");
  interp_of(L)->argv_name = luaS_newliteral(L, "ARGV");
  return 0;
}


iso_interp *iso_open (const iso_config *config) {
  iso_interp *interp = (iso_interp *)calloc(1, sizeof(*interp));
  size_t limit;
  int status;
  if (interp == NULL) return NULL;
  interp->calls = config->calls;
  interp->libraries = config->libraries;
  interp->library_count = config->library_count;
  interp->config = config;
  interp->runs_functions = config->runs_functions;
  interp->stop_text = config->runs_functions ? FUNCTION_STOPPED : SCRIPT_STOPPED;
  interp->random = RANDOM_START;
  interp->used = sizeof(*interp);
  interp->limit = config->memory_max;
  interp->L = lua_newstate(allocate, interp);
  if (interp->L == NULL) {
    iso_close(interp);
    return NULL;
  }
  lua_atpanic(interp->L, panicked);
  iso_set_limit(interp, config->memory_max);
  status = lua_cpcall(interp->L, open_body, NULL);
  if (status != 0) {
    iso_close(interp);
    return NULL;
  }
  lua_settop(interp->L, 0);
  lua_rawgeti(interp->L, LUA_REGISTRYINDEX, interp->handler);
  limit = interp->limit;
  interp->limit = 0;  /* nothing catches an error here */
  lua_pushcfunction(interp->L, run_body);
  lua_pushcfunction(interp->L, config->runs_functions ? load_body : compile_body);
  interp->limit = limit;
  interp->config = NULL;
  collect_all(interp);
  return interp;
}


size_t iso_constants (uint32_t *out, size_t max) {
  static const uint32_t constants[] = {
    TAPE_NIL, TAPE_FALSE, TAPE_TRUE, TAPE_NUMBER, TAPE_STRING, TAPE_TABLE, TAPE_TABLE_END, TAPE_OTHER, TAPE_NULL,
    TAPE_TOO_DEEP, TAPE_LIST, TAPE_LIBRARY, TAPE_VALUES, TAPE_NUMBERED, TAPE_KEYED, TAPE_FIELDS, TAPE_HEAD, FIELDS_MAX,
    LUA_TNIL, LUA_TBOOLEAN, LUA_TLIGHTUSERDATA, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, LUA_TFUNCTION, LUA_TUSERDATA,
    LUA_TTHREAD,
    sizeof(iso_span), sizeof(iso_constant), sizeof(iso_library), sizeof(iso_config), sizeof(iso_calls),
  };
  size_t i;
  for (i = 0; i < COUNT(constants) && i < max; i++) out[i] = constants[i];
  return COUNT(constants);
}
