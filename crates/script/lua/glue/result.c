/*
** The result of a script as tokens (glue.h lists them): what Rust turns into a reply.
**
** A table is an error, a status, a double, a big number, a verbatim string, a map or a set if it has the field `err`, `ok`,
** `double`, `big_number`, `verbatim_string`, `map` or `set` of the right type, asked in this order and without metamethods;
** otherwise an array, up to its first nil. A table nested deeper than Lua's stack allows is an error in its place.
**
** The walk does not recurse: its frames are in `iso_interp`, its values on Lua's stack, where an array takes one slot, a map
** the table, its map and the key.
*/

/* Slots that one step may push. */
#define RESULT_SLOTS	4

/* Tokens after which the count hook is asked, so that a tree of shared tables can be stopped. */
#define RESULT_STEPS	1000


static void put_sized (lua_State *L, iso_buffer *out, const void *bytes, size_t len) {
  put_u64(L, out, (uint64_t)len);
  put_bytes(L, out, bytes, len);
}


/* A string as far as its first NUL: these were C strings. */
static void put_cstring (lua_State *L, iso_buffer *out, const char *text) {
  put_sized(L, out, text, strlen(text));
}


static void put_error (lua_State *L, iso_buffer *out, const char *text, int counted) {
  put_byte(L, out, ISO_ERROR);
  put_byte(L, out, counted);
  put_cstring(L, out, text);
}


/* What C's cast gives on the machines at hand: what does not fit is the smallest. */
static int64_t as_int64 (double value) {
  return value >= -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value : INT64_MIN;
}


static int is_true_boolean (lua_State *L, int index) {
  return lua_type(L, index) == LUA_TBOOLEAN && lua_toboolean(L, index);
}


/* Pushes t[name] of the table on top, and returns its type. */
static int raw_field (lua_State *L, const char *name) {
  lua_pushstring(L, name);
  lua_rawget(L, -2);
  return lua_type(L, -1);
}


static int field_is (lua_State *L, const char *name, int type) {
  if (raw_field(L, name) == type) return 1;
  lua_pop(L, 1);
  return 0;
}


/*
** The error in the table on top: its text, and whether a command has counted it. An `err` that is no string has no text.
*/
static void put_error_table (lua_State *L, iso_buffer *out) {
  int counted;
  lua_getfield(L, -1, "ignore_error_stats_update");
  counted = is_true_boolean(L, -1);
  lua_pop(L, 1);
  lua_getfield(L, -1, "err");
  put_error(L, out, lua_isstring(L, -1) ? lua_tostring(L, -1) : "ERR unknown error", counted);
  lua_pop(L, 1);
}


/* A verbatim string whose table is on top; 0 if it lacks a part. */
static int put_verbatim (lua_State *L, iso_buffer *out) {
  size_t len;
  const char *text;
  if (!field_is(L, "format", LUA_TSTRING)) return 0;
  lua_insert(L, -2);
  if (!field_is(L, "string", LUA_TSTRING)) {
    lua_insert(L, -2);
    lua_pop(L, 1);
    return 0;
  }
  text = lua_tolstring(L, -1, &len);
  put_byte(L, out, ISO_VERBATIM);
  put_cstring(L, out, lua_tostring(L, -3));
  put_sized(L, out, text, len);
  lua_pop(L, 2);
  return 1;
}


/*
** The table on top, if its fields make it a value without parts. It stays on the stack.
*/
static int put_special (lua_State *L, iso_buffer *out) {
  if (field_is(L, "err", LUA_TSTRING)) {
    lua_pop(L, 1);
    put_error_table(L, out);
    return 1;
  }
  if (field_is(L, "ok", LUA_TSTRING)) {
    put_byte(L, out, ISO_STATUS);
    put_cstring(L, out, lua_tostring(L, -1));
    lua_pop(L, 1);
    return 1;
  }
  if (field_is(L, "double", LUA_TNUMBER)) {
    lua_Number value = lua_tonumber(L, -1);
    put_byte(L, out, ISO_DOUBLE);
    put_bytes(L, out, &value, 8);
    lua_pop(L, 1);
    return 1;
  }
  if (field_is(L, "big_number", LUA_TSTRING)) {
    put_byte(L, out, ISO_BIG_NUMBER);
    put_cstring(L, out, lua_tostring(L, -1));
    lua_pop(L, 1);
    return 1;
  }
  if (field_is(L, "verbatim_string", LUA_TTABLE)) {
    int done = put_verbatim(L, out);
    lua_pop(L, 1);
    return done;
  }
  return 0;
}


/* Opens an aggregate: its count is written when it is known. */
static void open_frame (lua_State *L, iso_buffer *out, size_t depth, int kind) {
  walk_frame *frame = frame_at(L, depth);
  put_byte(L, out, kind);
  frame->at = out->len;
  frame->count = 0;
  frame->kind = kind;
  frame->phase = 0;
  put_u64(L, out, 0);
}


/*
** Writes the value on top and pops it, or opens it as an aggregate and leaves it there: then it returns 1.
*/
static int put_value (lua_State *L, iso_buffer *out, size_t depth) {
  int64_t integer;
  size_t len;
  const char *text;
  if (!lua_checkstack(L, RESULT_SLOTS)) {
    put_error(L, out, "ERR reached lua stack limit", 0);
    lua_pop(L, 1);
    return 0;
  }
  switch (lua_type(L, -1)) {
    case LUA_TSTRING:
      text = lua_tolstring(L, -1, &len);
      put_byte(L, out, ISO_BULK);
      put_sized(L, out, text, len);
      break;
    case LUA_TNUMBER:
      integer = as_int64(lua_tonumber(L, -1));
      put_byte(L, out, ISO_INTEGER);
      put_bytes(L, out, &integer, 8);
      break;
    case LUA_TBOOLEAN:
      if (interp_of(L)->resp == 3) {
        put_byte(L, out, ISO_BOOLEAN);
        put_byte(L, out, lua_toboolean(L, -1));
      }
      else if (lua_toboolean(L, -1)) {
        integer = 1;
        put_byte(L, out, ISO_INTEGER);
        put_bytes(L, out, &integer, 8);
      }
      else
        put_byte(L, out, ISO_NULL);
      break;
    case LUA_TTABLE:
      if (put_special(L, out)) break;
      if (field_is(L, "map", LUA_TTABLE)) {
        open_frame(L, out, depth, ISO_MAP);
        lua_pushnil(L);
      }
      else if (field_is(L, "set", LUA_TTABLE)) {
        open_frame(L, out, depth, ISO_SET);
        lua_pushnil(L);
      }
      else
        open_frame(L, out, depth, ISO_ARRAY);
      return 1;
    default:
      put_byte(L, out, ISO_NULL);
  }
  lua_pop(L, 1);
  return 0;
}


/* Pushes the next part of an aggregate; 0 if there is none, and the aggregate is popped. */
static int next_part (lua_State *L, walk_frame *frame) {
  switch (frame->kind) {
    case ISO_ARRAY:
      lua_rawgeti(L, -1, (int)frame->count + 1);
      if (lua_isnil(L, -1)) {
        lua_pop(L, 2);
        return 0;
      }
      frame->count++;
      return 1;
    case ISO_MAP:
      if (frame->phase == 1) {  /* the value lies on top */
        frame->phase = 0;
        return 1;
      }
      if (lua_next(L, -2) == 0) {
        lua_pop(L, 2);
        return 0;
      }
      lua_pushvalue(L, -2);
      frame->phase = 1;
      frame->count++;
      return 1;
    default:
      if (lua_next(L, -2) == 0) {
        lua_pop(L, 2);
        return 0;
      }
      lua_pop(L, 1);
      lua_pushvalue(L, -1);
      frame->count++;
      return 1;
  }
}


/*
** The value on top, which is popped, as tokens behind what `out` holds.
*/
static void put_result (lua_State *L, iso_buffer *out) {
  size_t depth = 0;
  int steps = 0;
  if (put_value(L, out, depth)) depth = 1;
  while (depth > 0) {
    walk_frame *frame = frame_at(L, depth - 1);
    if (++steps == RESULT_STEPS) {
      steps = 0;
      lua_countsteps(L, RESULT_STEPS);
    }
    if (!next_part(L, frame)) {
      uint64_t count = frame->count;
      memcpy(out->data + frame->at, &count, 8);
      depth--;
    }
    else if (put_value(L, out, depth))
      depth++;
  }
}
