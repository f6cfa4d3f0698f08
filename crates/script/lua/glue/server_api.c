/*
** The functions of the table `server` (and `redis`, which is the same table).
**
** An error of these functions is a table {err = "CODE text"}; server.call raises it, server.pcall returns it.
*/

static void put_shown_value (lua_State *L, iso_buffer *out, int depth);

/* Propagation flags, as server.set_repl takes them. */
#define REPL_AOF	1
#define REPL_REPLICA	2

/* A request has at most so many bytes: isotherm_resp::limits::REQUEST_BYTES_MAX, compared by a test. */
#define REQUEST_BYTES_MAX	((size_t)UINT32_MAX)

/*
** Pushes {err = text}. "-CODE words" has its code, all else gets ERR: as does "-WORD", whose only word is no code. Line
** ends around the words are cut off. `text` is pushed as far as its first NUL.
*/
static void push_error_quietly (lua_State *L, const char *text, size_t len) {
  const char *zero = (const char *)memchr(text, 0, len);
  const char *words = text, *end;
  size_t code_len = 0;
  if (zero != NULL) len = (size_t)(zero - text);
  end = text + len;
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "err");
  if (len > 0 && *text == '-') {
    const char *blank = (const char *)memchr(text, ' ', len);
    if (blank == NULL) {
      lua_pushliteral(L, "ERR ");
      lua_pushlstring(L, text + 1, len - 1);
      lua_concat(L, 2);
      lua_rawset(L, -3);
      return;
    }
    words = blank + 1;
    code_len = (size_t)(blank - text) - 1;
  }
  while (words < end && (*words == '\r' || *words == '\n')) words++;
  while (end > words && (end[-1] == '\r' || end[-1] == '\n')) end--;
  if (words == text || *text != '-')
    lua_pushliteral(L, "ERR");
  else
    lua_pushlstring(L, text + 1, code_len);
  lua_pushliteral(L, " ");
  lua_pushlstring(L, words, (size_t)(end - words));
  lua_concat(L, 3);
  lua_rawset(L, -3);
}


/* And who debugs the script is shown it. */
static void push_error_text (lua_State *L, const char *text, size_t len) {
  if (interp_of(L)->debugs) debug_log(L, ISO_LOG_ERROR, text, len, 0);
  push_error_quietly(L, text, len);
}


#define push_error(L, text) push_error_text(L, text, sizeof(text) - 1)


static int raise_error_text (lua_State *L, const char *text) {
  push_error_text(L, text, strlen(text));
  return lua_error(L);
}


/* Functions that need the outside have a run; the finalizer of a userdata may be called without one. */
static iso_interp *running (lua_State *L) {
  iso_interp *interp = interp_of(L);
  if (interp->bridge == NULL) luaL_error(L, "no script is running");
  return interp;
}


static size_t decimal (int64_t value, uint8_t *text) {
  uint8_t digits[20];
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  size_t count = 0, len = 0;
  do {
    digits[count++] = (uint8_t)('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  if (value < 0) text[len++] = '-';
  while (count > 0) text[len++] = digits[--count];
  return len;
}


/*
** The text in which a number is an argument of a command: all its digits, unlike tostring. Integers up to 2^62 are
** written as such, however long.
*/
static size_t number_text (iso_interp *interp, double value, uint8_t *text) {
  const double whole_max = (double)(INT64_MAX / 2);
  if (value >= -whole_max && value <= whole_max && (double)(int64_t)value == value)
    return decimal((int64_t)value, text);
  return interp->calls->number_text(value, text);
}


static void put_header (lua_State *L, iso_buffer *buffer, int type, size_t number) {
  uint8_t *room = buffer_room(L, buffer, 32);
  size_t len = 0;
  room[len++] = (uint8_t)type;
  if (number < 10)
    room[len++] = (uint8_t)('0' + number);
  else
    len += decimal((int64_t)number, room + len);
  room[len++] = '\r';
  room[len++] = '\n';
  buffer->len += len;
}


/*
** Writes the arguments on the stack as a request, and pops them. Otherwise it leaves {err = ...} and returns 0.
*/
static int take_request (lua_State *L, iso_interp *interp) {
  int count = lua_gettop(L), i;
  iso_buffer *request = &interp->request;
  if (count == 0) {
    push_error(L, "Please specify at least one argument for this call");
    return 0;
  }
  if ((size_t)count > interp->span_cap) {
    size_t cap = (size_t)count < 16 ? 16 : (size_t)count * 2;
    iso_span *fresh = (iso_span *)allocate(interp, interp->spans, interp->span_cap * sizeof(iso_span),
                                           cap * sizeof(iso_span));
    if (fresh == NULL) luaD_throw(L, LUA_ERRMEM);
    interp->spans = fresh;
    interp->span_cap = cap;
  }
  request->len = 0;
  put_header(L, request, '*', (size_t)count);
  for (i = 1; i <= count; i++) {
    uint8_t digits[ISO_NUMBER_BYTES_MAX];
    const void *text;
    size_t len;
    uint8_t *room;
    switch (lua_type(L, i)) {
      case LUA_TNUMBER:
        len = number_text(interp, lua_tonumber(L, i), digits);
        text = digits;
        break;
      case LUA_TSTRING:
        text = lua_tolstring(L, i, &len);
        break;
      default:
        lua_settop(L, 0);
        push_error(L, "Command arguments must be strings or integers");
        return 0;
    }
    if (len >= REQUEST_BYTES_MAX - 64 || request->len >= REQUEST_BYTES_MAX - 64 - len) {
      lua_settop(L, 0);
      push_error(L, "Command arguments are too long");
      return 0;
    }
    put_header(L, request, '$', len);
    interp->spans[i - 1].start = (uint32_t)request->len;
    interp->spans[i - 1].len = (uint32_t)len;
    room = buffer_room(L, request, len + 2);
    memcpy(room, text, len);
    room[len] = '\r';
    room[len + 1] = '\n';
    request->len += len + 2;
  }
  interp->span_count = (size_t)count;
  lua_settop(L, 0);
  return 1;
}


static iso_bytes request_of (const iso_interp *interp) {
  iso_bytes wire;
  wire.data = interp->request.data;
  wire.len = interp->request.len;
  return wire;
}


static int run_command (lua_State *L, int raises) {
  iso_interp *interp = running(L);
  iso_bytes reply;
  if (!take_request(L, interp))
    return raises ? lua_error(L) : 1;
  interp->calls->call(interp->bridge, request_of(interp), interp->spans, interp->span_count, interp->resp, &reply);
  if (push_reply(L, reply) && raises)
    return lua_error(L);
  return 1;
}


static int server_call (lua_State *L) {
  return run_command(L, 1);
}


static int server_pcall (lua_State *L) {
  return run_command(L, 0);
}


/*
** pcall: as Lua's, but of an error that is a table with a field `err` only that text is returned, as scripts of old expect.
*/
static int base_pcall (lua_State *L) {
  int count = lua_gettop(L);
  luaL_checkany(L, 1);
  lua_pushboolean(L, 1);
  lua_insert(L, 1);
  if (lua_pcall(L, count - 1, LUA_MULTRET, 0) != 0) {
    lua_remove(L, 1);
    if (lua_istable(L, -1)) {
      lua_getfield(L, -1, "err");
      if (lua_isstring(L, -1)) lua_replace(L, -2);
    }
    lua_pushboolean(L, 0);
    lua_insert(L, 1);
  }
  return lua_gettop(L);
}


static int server_sha1hex (lua_State *L) {
  uint8_t digits[ISO_SHA_DIGITS];
  iso_bytes text;
  if (lua_gettop(L) != 1) return raise_error_text(L, "wrong number of arguments");
  text.data = (const uint8_t *)lua_tolstring(L, 1, &text.len);
  if (text.data == NULL) text.len = 0;
  interp_of(L)->calls->sha1hex(text, digits);
  lua_pushlstring(L, (const char *)digits, ISO_SHA_DIGITS);
  return 1;
}


static int takes_one_string (lua_State *L) {
  if (lua_gettop(L) == 1 && lua_type(L, 1) == LUA_TSTRING) return 1;
  push_error(L, "wrong number or type of arguments");
  return 0;
}


static int server_error_reply (lua_State *L) {
  size_t len;
  const char *text;
  if (!takes_one_string(L)) return 1;
  text = lua_tolstring(L, 1, &len);
  if (*text != '-') {
    lua_pushliteral(L, "-");
    lua_pushvalue(L, 1);
    lua_concat(L, 2);
    text = lua_tolstring(L, -1, &len);
  }
  push_error_text(L, text, len);
  return 1;
}


static int server_status_reply (lua_State *L) {
  if (!takes_one_string(L)) return 1;
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "ok");
  lua_pushvalue(L, 1);
  lua_rawset(L, -3);
  return 1;
}


/* A number as C's cast to int makes it on the machines at hand: what does not fit is the smallest. */
static int as_int (double value) {
  return value > -2147483649.0 && value < 2147483648.0 ? (int)value : INT_MIN;
}


static int server_set_repl (lua_State *L) {
  iso_interp *interp = running(L);
  int flags;
  if (lua_gettop(L) != 1) return raise_error_text(L, "server.set_repl() requires one argument.");
  flags = as_int(lua_tonumber(L, 1));
  if ((flags & ~(REPL_AOF | REPL_REPLICA)) != 0)
    return raise_error_text(L, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
  interp->calls->set_replication(interp->bridge, (uint8_t)flags);
  return 0;
}


static int server_setresp (lua_State *L) {
  iso_interp *interp = running(L);
  int resp;
  if (lua_gettop(L) != 1) return raise_error_text(L, "server.setresp() requires one argument.");
  resp = as_int(lua_tonumber(L, 1));
  if (resp != 2 && resp != 3) return raise_error_text(L, "RESP version must be 2 or 3.");
  interp->resp = resp;
  return 0;
}


static int server_acl_check_cmd (lua_State *L) {
  iso_interp *interp = running(L);
  int may;
  if (!take_request(L, interp)) return lua_error(L);
  may = interp->calls->may_run(interp->bridge, request_of(interp), interp->spans, interp->span_count);
  if (may < 0) return raise_error_text(L, "Invalid command passed to server.acl_check_cmd()");
  lua_pushboolean(L, may);
  return 1;
}


#define LOG_LEVEL_MAX	3

static int server_log (lua_State *L) {
  iso_interp *interp = running(L);
  int count = lua_gettop(L), level, i;
  iso_bytes text;
  if (count < 2) return raise_error_text(L, "server.log() requires two arguments or more.");
  if (!lua_isnumber(L, 1)) return raise_error_text(L, "First argument must be a number (log level).");
  level = as_int(lua_tonumber(L, 1));
  if (level < 0 || level > LOG_LEVEL_MAX) return raise_error_text(L, "Invalid log level.");
  interp->request.len = 0;
  for (i = 2; i <= count; i++) {
    size_t len;
    const char *part = lua_tolstring(L, i, &len);
    if (part == NULL) continue;
    if (i > 2) put_byte(L, &interp->request, ' ');
    put_bytes(L, &interp->request, part, strlen(part));
  }
  text = request_of(interp);
  interp->calls->log(interp->bridge, (uint8_t)level, text);
  return 0;
}


/* Without a debugger this does nothing, and says so. */
static int server_breakpoint (lua_State *L) {
  iso_interp *interp = interp_of(L);
  int debugs = interp->debugs && interp->bridge != NULL;
  if (debugs) interp->calls->debug_line(interp->bridge, 1);
  lua_pushboolean(L, debugs);
  return 1;
}


/* Shows its arguments to who debugs the script. */
static int server_debug (lua_State *L) {
  iso_interp *interp = interp_of(L);
  iso_buffer *out = &interp->debug_text;
  int count = lua_gettop(L), i;
  char head[48];
  if (!interp->debugs || interp->bridge == NULL) return 0;
  snprintf(head, sizeof(head), "<debug> line %d: ", interp->calls->debug_line(interp->bridge, 0));
  out->len = 0;
  put_bytes(L, out, head, strlen(head));
  for (i = 1; i <= count; i++) {
    if (i > 1) put_bytes(L, out, ", ", 2);
    lua_pushvalue(L, i);
    put_shown_value(L, out, 0);
    lua_pop(L, 1);
  }
  debug_log(L, ISO_LOG_LINE, (const char *)out->data, out->len, 0);
  return 0;
}


static int server_replicate_commands (lua_State *L) {
  lua_pushboolean(L, 1);
  return 1;
}
