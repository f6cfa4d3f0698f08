/*
** A tape as values of Lua: what a function of a library returns. tape.rs draws the bytes.
**
** Values lie on Lua's stack until what they are part of is complete; frames lie in `iso_interp`. A table of a few named fields is
** made of them at once, with its slots as they would be had the fields been assigned one by one.
*/

#define TAPE_TABLE	5
#define TAPE_LIST	10
#define TAPE_LIBRARY	11
#define TAPE_FIELDS	15

/* The fields of one table that wait on the stack, at most; Rust writes more of them as TAPE_TABLE. */
#define FIELDS_MAX	32

/* Slots of a played table: itself, a key, a value. */
#define PLAY_SLOTS	3

/* What a frame of a play waits for. */
#define PLAY_KEY	0
#define PLAY_VALUE	1
#define PLAY_ELEMENT	2
#define PLAY_FIELD	3


static uint32_t tape_u32 (const uint8_t *at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return value;
}


static void push_library (lua_State *L, uint32_t library, uint32_t instance);


/* A table of strings that has as many slots as keys, or so many keys: which key lies in which slot. */
typedef struct field_slots {
  const TString *keys[FIELDS_MAX];
  uint8_t slots[FIELDS_MAX];	/* the number of the key and 1, or 0 */
  int size;
  int free;			/* no slot from here is free */
} field_slots;


static int main_slot (const field_slots *fields, int key) {
  return (int)lmod(fields->keys[key]->tsv.hash, fields->size);
}


/* As newkey in ltable.c: a key that is in another's place makes way for it. */
static void place_field (field_slots *fields, int key) {
  int slot = main_slot(fields, key), other = fields->slots[slot];
  if (other != 0) {
    while (fields->slots[--fields->free] != 0) {}
    if (main_slot(fields, other - 1) != slot)
      fields->slots[fields->free] = (uint8_t)other;
    else
      slot = fields->free;
  }
  fields->slots[slot] = (uint8_t)(key + 1);
}


/*
** The order in which `count` keys come to a table that has grown to its last size: those that it had before from its last slot
** to its first, as resize in ltable.c moves them, then the others. Returns that size.
*/
static int order_of_fields (field_slots *fields, int count, uint8_t *order) {
  int placed = 1, i;
  fields->size = 1;
  fields->slots[0] = 1;
  order[0] = 0;
  while (placed < count) {
    for (i = 0; i < placed; i++) order[i] = (uint8_t)(fields->slots[placed - 1 - i] - 1);
    for (; i < count && i < 2 * placed; i++) order[i] = (uint8_t)i;
    fields->size *= 2;
    if (i == count) break;
    memset(fields->slots, 0, (size_t)fields->size);
    fields->free = fields->size;
    for (i = 0; i < fields->size; i++) place_field(fields, order[i]);
    placed = fields->size;
  }
  return fields->size;
}


/*
** Pops `count` keys, which are strings, each with a value that is not nil, and pushes a table of them. Nothing is collected
** before it is on the stack.
*/
static void make_fields (lua_State *L, int count) {
  StkId pairs = L->top - 2 * count;
  Table *table = luaH_new(L, 0, 0);
  field_slots fields;
  const TValue *values[FIELDS_MAX];
  uint8_t order[FIELDS_MAX];
  int distinct = 0, i, j;
  for (i = 0; i < count; i++) {
    const TString *key = rawtsvalue(pairs + 2 * i);
    for (j = 0; j < distinct && fields.keys[j] != key; j++) {}
    fields.keys[j] = key;
    values[j] = pairs + 2 * i + 1;
    if (j == distinct) distinct++;
  }
  if (distinct > 0) setnodevector(L, table, order_of_fields(&fields, distinct, order));
  table->flags = 0;
  for (i = 0; i < distinct; i++) {
    TValue key;
    setsvalue(L, &key, cast(TString *, fields.keys[order[i]]));
    setobj2t(L, newkey(L, table, &key), values[order[i]]);
  }
  sethvalue(L, pairs, table);
  L->top = pairs + 1;
}


/* Pushes the value at `at`, or an empty table for one that begins there, and returns what follows. */
static const uint8_t *play_item (lua_State *L, const uint8_t *at, uint32_t library) {
  lua_Number number;
  uint32_t len;
  switch (*at++) {
    case TAPE_STRING:
      len = tape_u32(at);
      luaC_checkGC(L);
      setsvalue2s(L, L->top, luaS_newlstr(L, (const char *)at + 4, len));
      L->top++;
      return at + 4 + len;
    case TAPE_NUMBER:
      memcpy(&number, at, 8);
      setnvalue(L->top, number);
      L->top++;
      return at + 8;
    case TAPE_NIL:
      lua_pushnil(L);
      return at;
    case TAPE_FALSE:
    case TAPE_TRUE:
      lua_pushboolean(L, at[-1] == TAPE_TRUE);
      return at;
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
      push_library(L, library, tape_u32(at));
      return at + 4;
    default:
      luaL_error(L, "a tape that cannot be played");
      return at;
  }
}


/* Room for so many slots. How deep tables may be nested is counted where the tape is written, by the slots that C would use. */
static void play_room (lua_State *L, int slots) {
  luaD_checkstack(L, slots);
  if (L->ci->top < L->top + slots) L->ci->top = L->top + slots;
}


/* Begins the table at `at` in the frame number `depth`. */
static const uint8_t *play_begin (lua_State *L, const uint8_t *at, size_t depth) {
  walk_frame *frame = frame_at(L, depth);
  uint8_t tag = *at;
  frame->count = 0;
  if (tag == TAPE_FIELDS) {
    frame->phase = PLAY_FIELD;
    play_room(L, 2 * (int)tape_u32(at + 1) + 1);
    return at + 9;
  }
  frame->phase = tag == TAPE_LIST ? PLAY_ELEMENT : PLAY_KEY;
  play_room(L, PLAY_SLOTS);
  return play_item(L, at, 0);
}


/* A value is complete on top of the stack: assigns it. */
static void play_value (lua_State *L, walk_frame *frame) {
  Table *table;
  switch (frame->phase) {
    case PLAY_FIELD:
      frame->count++;
      break;
    case PLAY_ELEMENT:
      table = hvalue(L->top - 2);
      if (frame->count < (size_t)table->sizearray) {
        setobj2t(L, &table->array[frame->count++], L->top - 1);
        luaC_barriert(L, table, L->top - 1);
        L->top--;
      }
      else
        lua_rawseti(L, -2, (int)++frame->count);
      break;
    case PLAY_KEY:
      frame->phase = PLAY_VALUE;
      break;
    default:
      lua_rawset(L, -3);
      frame->phase = PLAY_KEY;
  }
}


/*
** Pushes all values of a tape and returns how many they are.
*/
static int tape_play (lua_State *L, iso_bytes tape, uint32_t library) {
  const iso_interp *interp = interp_of(L);
  const uint8_t *at = tape.data, *end = tape.data + tape.len;
  size_t depth = 0;
  int values = 0;
  while (at < end) {
    switch (*at) {
      case TAPE_TABLE:
      case TAPE_LIST:
      case TAPE_FIELDS:
        at = play_begin(L, at, depth++);
        continue;
      case TAPE_TABLE_END:
        at++;
        depth--;
        if (interp->frames[depth].phase == PLAY_FIELD) {
          luaC_checkGC(L);
          make_fields(L, (int)(interp->frames[depth].count / 2));
        }
        break;
      default:
        if (depth == 0) luaL_checkstack(L, 1, "too many results");
        at = play_item(L, at, library);
    }
    if (depth == 0)
      values++;
    else
      play_value(L, &interp->frames[depth - 1]);
  }
  return values;
}
