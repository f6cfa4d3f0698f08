/*
** Functions that Rust provides: their arguments as a tape (walk.c), their results from one (play.c).
*/

/* Upvalues of a function: its number, its instance, the number of its library. */
#define UP_FUNCTION	0
#define UP_INSTANCE	1
#define UP_LIBRARY	2


static uint32_t upvalue_of (lua_State *L, int number) {
  return (uint32_t)nvalue(&curr_func(L)->c.upvalue[number]);
}


/* How deep the tables among the arguments are walked; without a table nobody is asked. */
static uint32_t depth_of_arguments (lua_State *L, iso_interp *interp, uint32_t function, uint32_t instance) {
  StkId argument;
  for (argument = L->base; argument < L->top; argument++)
    if (ttistable(argument)) return interp->calls->library_depth(interp->bridge, function, instance);
  return 0;
}


static int library_function (lua_State *L) {
  iso_interp *interp = running(L);
  uint32_t function = upvalue_of(L, UP_FUNCTION), instance = upvalue_of(L, UP_INSTANCE);
  uint32_t library = upvalue_of(L, UP_LIBRARY), status;
  tape_walker walker;
  iso_bytes args, out;
  int count = lua_gettop(L), i, values;
  interp->tape.len = 0;
  walker.L = L;
  walker.tape = &interp->tape;
  walker.limit = depth_of_arguments(L, interp, function, instance);
  walker.counted = 0;
  for (i = 0; i < count; i++)
    walk_value(&walker, L->base + i);
  args.data = interp->tape.data;
  args.len = interp->tape.len;
  status = interp->calls->library_call(interp->bridge, function, instance, args, (size_t)count, &out);
  lua_countsteps(L, (int)((args.len + out.len) / TAPE_BYTES_PER_STEP & 0xffffff));
  if (status == 0) {
    lua_settop(L, 0);  /* the slots of the arguments are for the results */
    values = tape_play(L, out, library);
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
