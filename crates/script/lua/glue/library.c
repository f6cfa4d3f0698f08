/*
** Functions that Rust provides: their arguments as a tape, their results from one. tape.rs draws the bytes.
**
** Both walks keep their values on Lua's stack and their frames in `iso_interp`; neither recurses.
*/

#define TAPE_NIL	0
#define TAPE_FALSE	1
#define TAPE_TRUE	2
#define TAPE_NUMBER	3
#define TAPE_STRING	4
#define TAPE_TABLE	5
#define TAPE_TABLE_END	6
#define TAPE_OTHER	7
#define TAPE_NULL	8
#define TAPE_TOO_DEEP	9
#define TAPE_LIST	10
#define TAPE_LIBRARY	11

/* Upvalues of a function: its number, its instance, the number of its library. */
#define UP_FUNCTION	lua_upvalueindex(1)
#define UP_INSTANCE	lua_upvalueindex(2)
#define UP_LIBRARY	lua_upvalueindex(3)

/* Slots that a step of a walk may push, and a step of a play. */
#define TAPE_SLOTS	3
#define PLAY_SLOTS	1

/* What a frame of a play waits for. */
#define PLAY_KEY	0
#define PLAY_VALUE	1
#define PLAY_ELEMENT	2

/* Bytes of a tape that cost as much as an instruction. */
#define TAPE_BYTES_PER_STEP	16


static void tape_put_string (lua_State *L, iso_buffer *tape, int index) {
  size_t len;
  const char *text = lua_tolstring(L, index, &len);
  uint8_t *room;
  if (len > UINT32_MAX - 8) luaL_error(L, "string too long");
  room = buffer_room(L, tape, len + 5);
  *room = TAPE_STRING;
  memcpy(room + 1, &len, 4);  /* its low four bytes */
  memcpy(room + 5, text, len);
  tape->len += len + 5;
}


/*
** Writes the value on top and pops it; a table that is to be walked stays there, with nil above it, and 1 is returned.
** With ISO_DEPTH_END a table that lies too deep sets the limit to 0 levels.
*/
static int tape_put (lua_State *L, iso_buffer *tape, size_t depth, uint32_t *limit) {
  uint8_t *room;
  lua_Number number;
  switch (lua_type(L, -1)) {
    case LUA_TNIL:
      put_byte(L, tape, TAPE_NIL);
      break;
    case LUA_TBOOLEAN:
      put_byte(L, tape, lua_toboolean(L, -1) ? TAPE_TRUE : TAPE_FALSE);
      break;
    case LUA_TNUMBER:
      number = lua_tonumber(L, -1);
      room = buffer_room(L, tape, 9);
      *room = TAPE_NUMBER;
      memcpy(room + 1, &number, 8);
      tape->len += 9;
      break;
    case LUA_TSTRING:
      tape_put_string(L, tape, -1);
      break;
    case LUA_TTABLE:
      if (depth >= (*limit & ISO_DEPTH_LEVELS) || !lua_checkstack(L, TAPE_SLOTS)) {
        put_byte(L, tape, TAPE_TOO_DEEP);
        if (*limit & ISO_DEPTH_END) *limit = ISO_DEPTH_END;
        break;
      }
      frame_at(L, depth)->phase = 0;
      put_byte(L, tape, TAPE_TABLE);
      put_u64(L, tape, 0);
      lua_pushnil(L);
      return 1;
    case LUA_TLIGHTUSERDATA:
      if (lua_touserdata(L, -1) == NULL) {
        put_byte(L, tape, TAPE_NULL);
        break;
      }
      /* fallthrough */
    default:
      put_byte(L, tape, TAPE_OTHER);
      put_byte(L, tape, lua_type(L, -1));
  }
  lua_pop(L, 1);
  return 0;
}


/*
** The value at `index`, with all that is in it.
*/
static void tape_walk (lua_State *L, iso_buffer *tape, int index, uint32_t *limit) {
  size_t depth = 0, counted = tape->len;
  luaL_checkstack(L, TAPE_SLOTS, "too many arguments");
  lua_pushvalue(L, index);
  if (tape_put(L, tape, depth, limit)) depth = 1;
  while (depth > 0) {
    walk_frame *frame = frame_at(L, depth - 1);
    if (frame->phase == 1)  /* the value lies on top */
      frame->phase = 0;
    else if (lua_next(L, -2) != 0) {
      lua_pushvalue(L, -2);
      frame->phase = 1;
    }
    else {
      put_byte(L, tape, TAPE_TABLE_END);
      lua_pop(L, 1);
      depth--;
      continue;
    }
    if (tape_put(L, tape, depth, limit)) depth++;
    if (tape->len - counted > 1000 * TAPE_BYTES_PER_STEP) {
      lua_countsteps(L, 1000);
      counted = tape->len;
    }
  }
}


static uint32_t tape_u32 (const uint8_t *at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return value;
}


static void push_library (lua_State *L, uint32_t library, uint32_t instance);


/* Pushes the value at `at`, or an empty table for one that begins there, and returns what follows. */
static const uint8_t *tape_push (lua_State *L, const uint8_t *at) {
  lua_Number number;
  uint32_t len;
  switch (*at++) {
    case TAPE_NIL:
      lua_pushnil(L);
      return at;
    case TAPE_FALSE:
    case TAPE_TRUE:
      lua_pushboolean(L, at[-1] == TAPE_TRUE);
      return at;
    case TAPE_NUMBER:
      memcpy(&number, at, 8);
      lua_pushnumber(L, number);
      return at + 8;
    case TAPE_STRING:
      len = tape_u32(at);
      lua_pushlstring(L, (const char *)at + 4, len);
      return at + 4 + len;
    case TAPE_TABLE:
      lua_createtable(L, (int)tape_u32(at), (int)tape_u32(at + 4));
      return at + 8;
    case TAPE_NULL:
      lua_pushlightuserdata(L, NULL);
      return at;
    case TAPE_LIST:
      lua_createtable(L, (int)tape_u32(at), 0);
      return at + 4;
    case TAPE_LIBRARY:
      push_library(L, (uint32_t)lua_tointeger(L, UP_LIBRARY), tape_u32(at));
      return at + 4;
    default:
      luaL_error(L, "a tape that cannot be played");
      return at;
  }
}


/*
** Pushes all values of a tape and returns how many they are.
*/
static int tape_play (lua_State *L, iso_bytes tape) {
  const uint8_t *at = tape.data, *end = tape.data + tape.len;
  size_t depth = 0;
  int values = 0;
  while (at < end) {
    if (*at == TAPE_TABLE_END) {
      at++;
      depth--;
    }
    else {
      uint8_t tag = *at;
      luaL_checkstack(L, PLAY_SLOTS, "too many nested tables");
      at = tape_push(L, at);
      if (tag == TAPE_TABLE || tag == TAPE_LIST) {
        walk_frame *frame = frame_at(L, depth++);
        frame->phase = tag == TAPE_LIST ? PLAY_ELEMENT : PLAY_KEY;
        frame->count = 0;
        continue;
      }
    }
    /* a value is complete on top of the stack */
    if (depth == 0)
      values++;
    else {
      walk_frame *frame = frame_at(L, depth - 1);
      if (frame->phase == PLAY_ELEMENT)
        lua_rawseti(L, -2, (int)++frame->count);
      else if (frame->phase == PLAY_KEY)
        frame->phase = PLAY_VALUE;
      else {
        lua_rawset(L, -3);
        frame->phase = PLAY_KEY;
      }
    }
  }
  return values;
}


static int library_function (lua_State *L) {
  iso_interp *interp = running(L);
  uint32_t function = (uint32_t)lua_tointeger(L, UP_FUNCTION);
  uint32_t instance = (uint32_t)lua_tointeger(L, UP_INSTANCE);
  uint32_t limit = interp->calls->library_depth(interp->bridge, function, instance);
  uint32_t status;
  iso_bytes args, out;
  int count = lua_gettop(L), i, values;
  interp->tape.len = 0;
  for (i = 1; i <= count; i++)
    tape_walk(L, &interp->tape, i, &limit);
  args.data = interp->tape.data;
  args.len = interp->tape.len;
  status = interp->calls->library_call(interp->bridge, function, instance, args, (size_t)count, &out);
  lua_countsteps(L, (int)((args.len + out.len) / TAPE_BYTES_PER_STEP & 0xffffff));
  if (status == 0) {
    lua_settop(L, 0);  /* the slots of the arguments are for the results */
    values = tape_play(L, out);
    buffer_trim(interp, &interp->tape);
    return values;
  }
  if (status == ISO_ERROR_PLACED) luaL_where(L, 1);
  lua_pushlstring(L, (const char *)out.data, out.len);
  if (status >= ISO_ERROR_ARGUMENT) return luaL_argerror(L, (int)(status - ISO_ERROR_ARGUMENT), lua_tostring(L, -1));
  if (status == ISO_ERROR_PLACED) lua_concat(L, 2);
  return lua_error(L);
}


static void push_text (lua_State *L, iso_bytes text) {
  lua_pushlstring(L, (const char *)text.data, text.len);
}


/*
** Pushes a new table of the functions and constants of a library.
*/
static void push_library (lua_State *L, uint32_t number, uint32_t instance) {
  const iso_library *library = &interp_of(L)->libraries[number];
  size_t i;
  luaL_checkstack(L, 8, "library");
  lua_newtable(L);
  for (i = 0; i < library->function_count; i++) {
    push_text(L, library->functions[i]);
    lua_pushinteger(L, (lua_Integer)(library->function_first + i));
    lua_pushinteger(L, (lua_Integer)instance);
    lua_pushinteger(L, (lua_Integer)number);
    lua_pushcclosure(L, library_function, 3);
    lua_rawset(L, -3);
  }
  for (i = 0; i < library->constant_count; i++) {
    const iso_constant *constant = &library->constants[i];
    push_text(L, constant->name);
    if (constant->type == LUA_TSTRING)
      push_text(L, constant->text);
    else if (constant->type == LUA_TNUMBER)
      lua_pushnumber(L, constant->number);
    else
      lua_pushlightuserdata(L, NULL);
    lua_rawset(L, -3);
  }
}
