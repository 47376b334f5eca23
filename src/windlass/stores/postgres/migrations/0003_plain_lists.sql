-- A claim or a settle of many jobs lists them in one row, and a row of two kilobytes would be
-- compressed, at each change of it: that took more of the server's time than any other function.
-- Up to a page, a list is now kept as it is.

ALTER TABLE windlass_lease SET (toast_tuple_target = 8160);
ALTER TABLE windlass_ended SET (toast_tuple_target = 8160);
