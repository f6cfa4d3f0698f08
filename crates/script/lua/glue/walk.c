/*
** Values of Lua as a tape: what a function of a library is called with. tape.rs draws the bytes.
**
** A walk reads the slots of tables in place, in the order of lua_next, and pushes nothing: no code of Lua runs meanwhile, and
** the garbage is not collected, so the tables stay as they are. (The hook may end the script from here, and does nothing else.)
** Frames lie in `iso_interp`; nothing recurses.
*/

/* Played and walked. */
#define TAPE_NIL	0
#define TAPE_FALSE	1
#define TAPE_TRUE	2
#define TAPE_NUMBER	3
#define TAPE_STRING	4
#define TAPE_TABLE_END	6
#define TAPE_OTHER	7
#define TAPE_NULL	8
/* Walked. */
#define TAPE_TOO_DEEP	9
#define TAPE_VALUES	12
#define TAPE_NUMBERED	13
#define TAPE_KEYED	14

/* The head of a walked table: its tag, the number of its entries, its bytes with head and end. */
#define TAPE_HEAD	13

/* Bytes of a tape that cost as much as an instruction. */
#define TAPE_BYTES_PER_STEP	16

typedef struct tape_walker {
  lua_State *L;
  iso_buffer *tape;
  uint32_t limit;		/* levels of tables that are followed: see ISO_DEPTH_* */
  size_t counted;		/* bytes of the tape that the hook knows of */
} tape_walker;


static inline uint8_t *tape_room (tape_walker *walker, size_t more) {
  return buffer_room(walker->L, walker->tape, more);
}


static inline void walk_number (tape_walker *walker, lua_Number number) {
  uint8_t *room = tape_room(walker, 9);
  *room = TAPE_NUMBER;
  memcpy(room + 1, &number, 8);
  walker->tape->len += 9;
}


static inline void walk_string (tape_walker *walker, const TString *string) {
  size_t len = string->tsv.len;
  uint8_t *room;
  if (len > UINT32_MAX - 8) luaL_error(walker->L, "string too long");
  room = tape_room(walker, len + 5);
  *room = TAPE_STRING;
  memcpy(room + 1, &len, 4);  /* its low four bytes */
  memcpy(room + 5, getstr(string), len);
  walker->tape->len += len + 5;
}


static void walk_tag (tape_walker *walker, int tag) {
  *tape_room(walker, 1) = (uint8_t)tag;
  walker->tape->len++;
}


/*
** The number of values of a table whose keys are 1, 2, 3, ... in this order, or -1 if it is another.
*/
static long count_values (const Table *table) {
  int size = table->sizearray, count = 0, at;
  if (table->node != dummynode) return -1;
  while (count < size && !ttisnil(&table->array[count])) count++;
  for (at = count; at < size; at++)
    if (!ttisnil(&table->array[at])) return -1;
  return count;
}


/*
** Opens the frame number `depth` for a table, and returns 1; or says that it is too deep. With ISO_DEPTH_END all that
** follow then are.
*/
static int walk_table (tape_walker *walker, const Table *table, size_t depth) {
  walk_frame *frame;
  long count;
  if (depth >= (walker->limit & ISO_DEPTH_LEVELS)) {
    walk_tag(walker, TAPE_TOO_DEEP);
    if (walker->limit & ISO_DEPTH_END) walker->limit = ISO_DEPTH_END;
    return 0;
  }
  frame = frame_at(walker->L, depth);
  count = count_values(table);
  frame->table = table;
  frame->slot = 0;
  frame->phase = 0;
  frame->kind = count >= 0 ? TAPE_VALUES : TAPE_NUMBERED;
  frame->count = count >= 0 ? (size_t)count : 0;
  frame->at = walker->tape->len;
  tape_room(walker, TAPE_HEAD);
  walker->tape->len += TAPE_HEAD;
  return 1;
}


/* One value. 1: it is a table, the frame number `depth` is open for it, and other frames may have moved. */
static inline int walk_item (tape_walker *walker, const TValue *value, size_t depth) {
  switch (ttype(value)) {
    case LUA_TSTRING:
      walk_string(walker, rawtsvalue(value));
      return 0;
    case LUA_TNUMBER:
      walk_number(walker, nvalue(value));
      return 0;
    case LUA_TTABLE:
      return walk_table(walker, hvalue(value), depth);
    case LUA_TBOOLEAN:
      walk_tag(walker, bvalue(value) ? TAPE_TRUE : TAPE_FALSE);
      return 0;
    case LUA_TNIL:
      walk_tag(walker, TAPE_NIL);
      return 0;
    case LUA_TLIGHTUSERDATA:
      if (pvalue(value) == NULL) {
        walk_tag(walker, TAPE_NULL);
        return 0;
      }
      /* fallthrough */
    default:
      walk_tag(walker, TAPE_OTHER);
      walk_tag(walker, ttype(value));
      return 0;
  }
}


static inline void count_walk (tape_walker *walker) {
  if (walker->tape->len - walker->counted <= 1000 * TAPE_BYTES_PER_STEP) return;
  walker->counted = walker->tape->len;
  lua_countsteps(walker->L, 1000);
}


/* The values of a table that has nothing else, up to the next that is a table; 0 behind the last. */
static int walk_values (tape_walker *walker, walk_frame *frame, size_t depth) {
  while (frame->slot < frame->count) {
    if (walk_item(walker, &frame->table->array[frame->slot++], depth)) return 1;
    count_walk(walker);
  }
  return 0;
}


/*
** The next key of a table, and whether it opened a frame. `value` is what belongs to it, or NULL behind the last.
*/
static int walk_key (tape_walker *walker, walk_frame *frame, size_t depth, const TValue **value) {
  const Table *table = frame->table;
  size_t size = (size_t)table->sizearray, end = size + (size_t)sizenode(table);
  for (; frame->slot < size; frame->slot++) {
    if (ttisnil(&table->array[frame->slot])) continue;
    *value = &table->array[frame->slot++];
    frame->count++;
    walk_number(walker, (lua_Number)frame->slot);
    return 0;
  }
  for (; frame->slot < end; frame->slot++) {
    Node *node = gnode(table, frame->slot - size);
    if (ttisnil(gval(node))) continue;
    *value = gval(node);
    frame->slot++;
    frame->count++;
    if (ttype(gkey(node)) != LUA_TNUMBER) frame->kind = TAPE_KEYED;
    return walk_item(walker, key2tval(node), depth);
  }
  *value = NULL;
  return 0;
}


/* The value of the key before the next slot. */
static const TValue *value_before (const walk_frame *frame) {
  size_t slot = frame->slot - 1, size = (size_t)frame->table->sizearray;
  return slot < size ? &frame->table->array[slot] : gval(gnode(frame->table, slot - size));
}


/* Keys and values, up to the next that is a table; 0 behind the last. */
static int walk_pairs (tape_walker *walker, walk_frame *frame, size_t depth) {
  const TValue *value;
  if (frame->phase == 1) {  /* the key was a table */
    frame->phase = 0;
    if (walk_item(walker, value_before(frame), depth)) return 1;
  }
  for (;;) {
    frame->phase = 1;
    if (walk_key(walker, frame, depth, &value)) return 1;
    frame->phase = 0;
    if (value == NULL) return 0;
    if (walk_item(walker, value, depth)) return 1;
    count_walk(walker);
  }
}


/* Writes what is now known into the head of a table. */
static void close_walked (tape_walker *walker, const walk_frame *frame) {
  uint8_t *head;
  uint32_t count = (uint32_t)frame->count;
  uint64_t len;
  walk_tag(walker, TAPE_TABLE_END);
  head = walker->tape->data + frame->at;
  len = walker->tape->len - frame->at;
  *head = (uint8_t)frame->kind;
  memcpy(head + 1, &count, 4);
  memcpy(head + 5, &len, 8);
}


/*
** A value with all that is in it.
*/
static void walk_value (tape_walker *walker, const TValue *value) {
  const iso_interp *interp = interp_of(walker->L);
  size_t depth = 0;
  if (walk_item(walker, value, depth)) depth = 1;
  while (depth > 0) {
    walk_frame *frame = &interp->frames[depth - 1];
    int is_deeper = frame->kind == TAPE_VALUES ? walk_values(walker, frame, depth) : walk_pairs(walker, frame, depth);
    if (is_deeper)
      depth++;
    else {
      close_walked(walker, frame);
      depth--;
    }
    count_walk(walker);
  }
}
