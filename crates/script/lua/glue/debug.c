/*
** The debugger's side in Lua: the hook that stops a script, and what is shown of it there.
**
** Which lines a script stops at, and what the user asks for, is Rust's. An error in here is one of the script, as in Valkey; what
** the user lets it evaluate runs in protected mode, with the count hook, so that it can be interrupted and stopped as scripts can.
*/

static void count_hook (lua_State *L, lua_Debug *unused);
static void stop_run (lua_State *L);

/* What one line may show: a value may contain others many times. */
#define SHOWN_BYTES_MAX	((size_t)1 << 20)
#define SHOWN_DEPTH_MAX	10
/* Valkey's count hook is called each time that ours was so often. */
#define COUNTS_PER_STOP	(HOOK_INSTRUCTIONS / HOOK_OFTEN)

static void debug_log (lua_State *L, int kind, const char *text, size_t len, int line) {
  iso_interp *interp = interp_of(L);
  iso_bytes bytes;
  bytes.data = (const uint8_t *)text;
  bytes.len = len;
  if (interp->bridge != NULL) interp->calls->debug_log(interp->bridge, kind, bytes, line);
}


static void log_text (lua_State *L, const char *head, const char *text) {
  iso_buffer *out = &interp_of(L)->debug_text;
  out->len = 0;
  put_bytes(L, out, head, strlen(head));
  put_bytes(L, out, text, strlen(text));
  debug_log(L, ISO_LOG_LINE, (const char *)out->data, out->len, 0);
}


/* Whether the keys of the table on top are 1, 2, 3 and so on, in this order. */
static int is_plain_list (lua_State *L) {
  lua_Number expected = 1;
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != expected) {
      lua_pop(L, 1);
      return 0;
    }
    expected++;
  }
  return 1;
}


static void put_shown_table (lua_State *L, iso_buffer *out, int depth) {
  int plain = is_plain_list(L);
  put_byte(L, out, '{');
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    if (out->len > SHOWN_BYTES_MAX) {
      put_bytes(L, out, "...", 3);
      lua_pop(L, 2);
      break;
    }
    if (!plain) {
      put_byte(L, out, '[');
      lua_pushvalue(L, -2);
      put_shown_value(L, out, depth + 1);
      lua_pop(L, 1);
      put_bytes(L, out, "]=", 2);
    }
    put_shown_value(L, out, depth + 1);
    put_bytes(L, out, "; ", 2);
    lua_pop(L, 1);
  }
  put_byte(L, out, '}');
}


/* The value on top, which stays. */
static void put_shown_value (lua_State *L, iso_buffer *out, int depth) {
  static const char nested[] = "<max recursion level reached! Nested table?>";
  char text[64];
  size_t len;
  const char *string;
  const char *kind = "unknown";
  if (depth == SHOWN_DEPTH_MAX) {
    put_bytes(L, out, nested, sizeof(nested) - 1);
    return;
  }
  luaL_checkstack(L, 6, "value");
  switch (lua_type(L, -1)) {
    case LUA_TSTRING:
      string = lua_tolstring(L, -1, &len);
      put_bytes(L, out, string, len);
      return;
    case LUA_TBOOLEAN:
      string = lua_toboolean(L, -1) ? "true" : "false";
      put_bytes(L, out, string, strlen(string));
      return;
    case LUA_TNUMBER:
      len = (size_t)snprintf(text, sizeof(text), "%g", lua_tonumber(L, -1));
      put_bytes(L, out, text, len);
      return;
    case LUA_TNIL:
      put_bytes(L, out, "nil", 3);
      return;
    case LUA_TTABLE:
      put_shown_table(L, out, depth);
      return;
    case LUA_TFUNCTION: kind = "function"; break;
    case LUA_TUSERDATA: kind = "userdata"; break;
    case LUA_TTHREAD: kind = "thread"; break;
    case LUA_TLIGHTUSERDATA: kind = "light-userdata"; break;
  }
  len = (size_t)snprintf(text, sizeof(text), " \"%s@%p\"", kind, lua_topointer(L, -1));
  put_bytes(L, out, text, len);
}


/* The value on top, which stays, behind up to three texts. */
static void log_value (lua_State *L, const char *head, const char *name, const char *sign) {
  iso_buffer *out = &interp_of(L)->debug_text;
  out->len = 0;
  put_bytes(L, out, head, strlen(head));
  put_bytes(L, out, name, strlen(name));
  put_bytes(L, out, sign, strlen(sign));
  put_shown_value(L, out, 0);
  debug_log(L, ISO_LOG_LINE, (const char *)out->data, out->len, 0);
}


static int is_text (iso_bytes bytes, const char *text) {
  return strlen(text) == bytes.len && memcmp(text, bytes.data, bytes.len) == 0;
}


/* The first variable of this name, from the function that the script stands in outwards. */
static void print_variable (lua_State *L, iso_bytes wanted) {
  lua_Debug info;
  int level, i;
  for (level = 0; lua_getstack(L, level, &info); level++) {
    const char *name;
    for (i = 1; (name = lua_getlocal(L, &info, i)) != NULL; i++) {
      if (is_text(wanted, name)) {
        log_value(L, "<value> ", "", "");
        lua_pop(L, 1);
        return;
      }
      lua_pop(L, 1);
    }
  }
  if (is_text(wanted, "ARGV") || is_text(wanted, "KEYS")) {
    lua_getglobal(L, wanted.data[0] == 'A' ? "ARGV" : "KEYS");
    log_value(L, "<value> ", "", "");
    lua_pop(L, 1);
  }
  else
    log_text(L, "No such variable.", "");
}


static void print_variables (lua_State *L) {
  lua_Debug info;
  const char *name;
  int i, count = 0;
  if (lua_getstack(L, 0, &info))
    for (i = 1; (name = lua_getlocal(L, &info, i)) != NULL; i++) {
      if (strstr(name, "(*temporary)") == NULL) {
        log_value(L, "<value> ", name, " = ");
        count++;
      }
      lua_pop(L, 1);
    }
  if (count == 0) log_text(L, "No local variables in the current context.", "");
}


static int is_own_place (const lua_Debug *info) {
  return strstr(info->short_src, "user_script") != NULL;
}


static void trace_calls (lua_State *L) {
  iso_buffer *out = &interp_of(L)->debug_text;
  lua_Debug info;
  int level;
  for (level = 0; lua_getstack(L, level, &info); level++) {
    const char *name;
    lua_getinfo(L, "Snl", &info);
    if (!is_own_place(&info)) continue;
    name = info.name == NULL ? "top level" : info.name;
    out->len = 0;
    put_bytes(L, out, level == 0 ? "In " : "From ", level == 0 ? 3 : 5);
    put_bytes(L, out, name, strlen(name));
    put_byte(L, out, ':');
    debug_log(L, ISO_LOG_FRAME, (const char *)out->data, out->len, info.currentline);
  }
  if (level == 0) log_text(L, "<error> Can't retrieve Lua stack.", "");
}


static void debug_hook (lua_State *L, lua_Debug *event);

/*
** Calls what lies below `arg_count` arguments, as lua_pcall does. In a hook no other is called: it would not end if it loops.
*/
static int call_in_hook (lua_State *L, int arg_count) {
  int status;
  lua_sethook(L, count_hook, LUA_MASKCOUNT, HOOK_OFTEN);
  L->allowhook = 1;
  status = lua_pcall(L, arg_count, 1, 0);
  L->allowhook = 0;
  if (interp_of(L)->stopped) stop_run(L);
  lua_sethook(L, debug_hook, LUA_MASKLINE | LUA_MASKCOUNT, HOOK_OFTEN);
  return status;
}


static const char *error_on_top (lua_State *L) {
  const char *text = lua_tostring(L, -1);
  return text == NULL ? "(null)" : text;
}


/* The code as an expression, or else as statements. */
static void evaluate (lua_State *L, iso_bytes code) {
  const char *text = (const char *)code.data;
  size_t len;
  const char *expression;
  lua_pushliteral(L, "return ");
  lua_pushlstring(L, text, code.len);
  lua_concat(L, 2);
  expression = lua_tolstring(L, -1, &len);
  if (luaL_loadbuffer(L, expression, len, "@ldb_eval") != 0) {
    lua_pop(L, 1);
    if (luaL_loadbuffer(L, text, code.len, "@ldb_eval") != 0) {
      log_text(L, "Error compiling code: ", error_on_top(L));
      return;
    }
  }
  if (call_in_hook(L, 0) != 0)
    log_text(L, "<error> ", error_on_top(L));
  else
    log_value(L, "<retval> ", "", "");
}


/* redis.call with these words; it and its reply are logged on the way. */
static void call_server (lua_State *L) {
  iso_interp *interp = interp_of(L);
  iso_bytes word;
  int count = 0;
  lua_pushcfunction(L, server_call);
  while (interp->calls->debug_word(interp->bridge, (size_t)count, &word)) {
    luaL_checkstack(L, 2, "command");
    push_text(L, word);
    count++;
  }
  call_in_hook(L, count);
}


/* Does what the user asks for, until the script is to go on. */
static void stop_here (lua_State *L) {
  iso_interp *interp = interp_of(L);
  int top = lua_gettop(L);
  for (;;) {
    iso_bytes text;
    lua_settop(L, top);
    luaL_checkstack(L, 10, "debugger");
    switch (interp->calls->debug_next(interp->bridge, &text)) {
      case ISO_DEBUG_GO_ON: return;
      case ISO_DEBUG_STOP: stop_run(L); return;
      case ISO_DEBUG_FAIL:
        push_error_text(L, (const char *)text.data, text.len);
        lua_error(L);
        return;
      case ISO_DEBUG_PRINT_ALL: print_variables(L); break;
      case ISO_DEBUG_PRINT: print_variable(L, text); break;
      case ISO_DEBUG_TRACE: trace_calls(L); break;
      case ISO_DEBUG_EVAL: evaluate(L, text); break;
      case ISO_DEBUG_CALL: call_server(L); break;
    }
  }
}


/* At each line of a script that is debugged, and now and then within a line. */
static void debug_hook (lua_State *L, lua_Debug *event) {
  iso_interp *interp = interp_of(L);
  lua_Debug info;
  if (interp->bridge == NULL) return;
  if (interp->stopped) stop_run(L);
  if (event->event == LUA_HOOKCOUNT) {
    if (interp->calls->checkpoint(interp->bridge) == ISO_STOP) stop_run(L);
    if (++interp->debug_counts % COUNTS_PER_STOP != 0) return;
  }
  if (!lua_getstack(L, 0, &info)) return;
  lua_getinfo(L, "Sl", &info);
  if (*info.what == 'C') return;  /* a function of a library that counts its steps */
  if (interp->calls->debug_reach(interp->bridge, info.currentline, is_own_place(&info))) stop_here(L);
}
