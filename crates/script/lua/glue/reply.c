/*
** The reply to a command, from RESP to a value of Lua.
**
**   +text    {ok = text}            $-1 *-1   false             ,1.5      {double = 1.5}
**   -text    {err = text, ...}      _         nil               (123      {big_number = "123"}
**   :1       1                      #t        true              =7 txt:abc {verbatim_string = {format =, string =}}
**   $1 *1    string, table          %1        {map = {k = v}}   ~1        {set = {v = true}}
**
** The bytes are our own writer's. What is cut off or unknown is an error of Lua all the same, not a wild read.
*/

#define REPLY_DEPTH_MAX		256

typedef struct reply_reader {
  const uint8_t *at;
  const uint8_t *end;
} reply_reader;


static int bad_reply (lua_State *L) {
  return luaL_error(L, "a reply that cannot be read");
}


/* The bytes up to the end of the line, which is passed. */
static iso_bytes reply_line (lua_State *L, reply_reader *reader) {
  iso_bytes line;
  const uint8_t *end = (const uint8_t *)memchr(reader->at, '\r', (size_t)(reader->end - reader->at));
  if (end == NULL || end + 2 > reader->end) bad_reply(L);
  line.data = reader->at;
  line.len = (size_t)(end - reader->at);
  reader->at = end + 2;
  return line;
}


static int64_t reply_number (lua_State *L, reply_reader *reader) {
  const uint8_t *at = reader->at, *end = reader->end;
  uint64_t value = 0;
  int negative = at < end && *at == '-';
  if (negative) at++;
  for (; at < end && *at >= '0' && *at <= '9'; at++)
    value = value * 10 + (uint64_t)(*at - '0');
  if (end - at < 2 || *at != '\r') bad_reply(L);
  reader->at = at + 2;
  return (int64_t)(negative ? 0 - value : value);
}


static iso_bytes reply_string (lua_State *L, reply_reader *reader, int64_t len) {
  iso_bytes text;
  if (len < 0 || reader->end - reader->at < 2 || len > reader->end - reader->at - 2) bad_reply(L);
  text.data = reader->at;
  text.len = (size_t)len;
  reader->at += len + 2;
  return text;
}


static void push_field_table (lua_State *L, const char *name, iso_bytes text) {
  lua_createtable(L, 0, 1);
  lua_pushstring(L, name);
  lua_pushlstring(L, (const char *)text.data, text.len);
  lua_rawset(L, -3);
}


static void push_error_quietly (lua_State *L, const char *text, size_t len);
static void debug_log (lua_State *L, int kind, const char *text, size_t len, int line);
static void push_value (lua_State *L, reply_reader *reader, int depth);


static void push_error_reply (lua_State *L, iso_bytes line) {
  /* the line with its '-' stands one byte before; its end is shown too, as Valkey does */
  if (interp_of(L)->debugs) debug_log(L, ISO_LOG_ERROR, (const char *)line.data - 1, line.len + 3, 0);
  push_error_quietly(L, (const char *)line.data - 1, line.len + 1);
  lua_pushliteral(L, "ignore_error_stats_update");
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
}


static void push_array (lua_State *L, reply_reader *reader, int64_t count, int depth) {
  int64_t i;
  if (count > INT_MAX || count > reader->end - reader->at) bad_reply(L);
  lua_createtable(L, (int)count, 0);
  for (i = 1; i <= count; i++) {
    push_value(L, reader, depth + 1);
    lua_rawseti(L, -2, (int)i);
  }
}


static void push_map (lua_State *L, reply_reader *reader, int64_t count, int depth) {
  if (count < 0 || count > INT_MAX || count > reader->end - reader->at) bad_reply(L);
  lua_newtable(L);
  lua_pushliteral(L, "map");
  lua_createtable(L, 0, (int)count);
  for (; count > 0; count--) {
    push_value(L, reader, depth + 1);
    push_value(L, reader, depth + 1);
    lua_rawset(L, -3);
  }
  lua_rawset(L, -3);
}


static void push_set (lua_State *L, reply_reader *reader, int64_t count, int depth) {
  if (count < 0 || count > INT_MAX || count > reader->end - reader->at) bad_reply(L);
  lua_newtable(L);
  lua_pushliteral(L, "set");
  lua_createtable(L, 0, (int)count);
  for (; count > 0; count--) {
    push_value(L, reader, depth + 1);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
  lua_rawset(L, -3);
}


static void push_double (lua_State *L, iso_bytes line) {
  char text[128];
  size_t len = line.len < sizeof(text) - 1 ? line.len : sizeof(text) - 1;
  memcpy(text, line.data, len);
  text[len] = 0;
  lua_newtable(L);
  lua_pushliteral(L, "double");
  lua_pushnumber(L, strtod(text, NULL));
  lua_rawset(L, -3);
}


static void push_verbatim (lua_State *L, iso_bytes text) {
  if (text.len < 4) bad_reply(L);
  lua_newtable(L);
  lua_pushliteral(L, "verbatim_string");
  lua_newtable(L);
  lua_pushliteral(L, "string");
  lua_pushlstring(L, (const char *)text.data + 4, text.len - 4);
  lua_rawset(L, -3);
  lua_pushliteral(L, "format");
  lua_pushlstring(L, (const char *)text.data, 3);
  lua_rawset(L, -3);
  lua_rawset(L, -3);
}


static void push_value (lua_State *L, reply_reader *reader, int depth) {
  int type;
  int64_t number;
  if (reader->at >= reader->end || depth > REPLY_DEPTH_MAX) bad_reply(L);
  luaL_checkstack(L, 6, "reply");
  type = *reader->at++;
  switch (type) {
    case '$':
      number = reply_number(L, reader);
      if (number < 0)
        lua_pushboolean(L, 0);
      else {
        iso_bytes text = reply_string(L, reader, number);
        lua_pushlstring(L, (const char *)text.data, text.len);
      }
      return;
    case ':':
      lua_pushnumber(L, (lua_Number)reply_number(L, reader));
      return;
    case '+':
      push_field_table(L, "ok", reply_line(L, reader));
      return;
    case '-':
      push_error_reply(L, reply_line(L, reader));
      return;
    case '*':
      number = reply_number(L, reader);
      if (number < 0)
        lua_pushboolean(L, 0);
      else
        push_array(L, reader, number, depth);
      return;
    case '_':
      reply_line(L, reader);
      lua_pushnil(L);
      return;
    case '#':
      lua_pushboolean(L, reply_line(L, reader).data[0] == 't');
      return;
    case ',':
      push_double(L, reply_line(L, reader));
      return;
    case '(':
      push_field_table(L, "big_number", reply_line(L, reader));
      return;
    case '=':
      number = reply_number(L, reader);
      push_verbatim(L, reply_string(L, reader, number));
      return;
    case '%':
      number = reply_number(L, reader);
      push_map(L, reader, number, depth);
      return;
    case '~':
      number = reply_number(L, reader);
      push_set(L, reader, number, depth);
      return;
    default:
      bad_reply(L);
  }
}


/*
** Pushes the value of a reply; 1 if it is an error.
*/
static int push_reply (lua_State *L, iso_bytes reply) {
  reply_reader reader;
  reader.at = reply.data;
  reader.end = reply.data + reply.len;
  push_value(L, &reader, 0);
  return reply.data[0] == '-';
}
