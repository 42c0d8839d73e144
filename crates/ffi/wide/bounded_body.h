/* The bounded functions of one width: see bounded.c. */

/* Writes a text of at most "count" units, and its terminator, at "start". If it does not fit, the
 * whole buffer is emptied; with the count TRUNCATE, the text is cut instead. */
static int NAME(_append)(UNIT *to, size_t start, size_t room, const UNIT *from, size_t count) {
    if (!from) {
        to[0] = 0;
        return EINVAL;
    }
    size_t most = count == TRUNCATE ? room - start : count;
    size_t length = NAME(nlen)(from, most < room - start ? most : room - start);
    if (length < room - start) {
        MEMORY(memcpy)(to + start, from, length);
        to[start + length] = 0;
        return 0;
    }
    if (count != TRUNCATE) {
        to[0] = 0;
        return ERANGE;
    }
    MEMORY(memcpy)(to + start, from, room - start - 1);
    to[room - 1] = 0;
    return 80; /* STRUNCATE */
}

int NAME(ncpy_s)(UNIT *to, size_t room, const UNIT *from, size_t count) {
    if (!to && room == 0 && count == 0)
        return 0;
    if (!to || room == 0)
        return EINVAL;
    return NAME(_append)(to, 0, room, from, count);
}

int NAME(cpy_s)(UNIT *to, size_t room, const UNIT *from) {
    if (!to || room == 0)
        return EINVAL;
    return NAME(_append)(to, 0, room, from, PTRDIFF_MAX);
}

int NAME(ncat_s)(UNIT *to, size_t room, const UNIT *from, size_t count) {
    if (!to && room == 0 && count == 0)
        return 0;
    if (!to || room == 0)
        return EINVAL;
    size_t start = NAME(nlen)(to, room);
    if (start == room) {
        to[0] = 0;
        return EINVAL;
    }
    return NAME(_append)(to, start, room, from, count);
}

int NAME(cat_s)(UNIT *to, size_t room, const UNIT *from) {
    return NAME(ncat_s)(to, room, from, PTRDIFF_MAX);
}

size_t NAME(nlen_s)(const UNIT *text, size_t most) {
    return text ? NAME(nlen)(text, most) : 0;
}
