-- A claim or a settle of many jobs lists them in one row. PostgreSQL compresses rows above two
-- kilobytes at each update: that took more of the server's time than any other function. Lists of
-- up to a page now stay uncompressed.

ALTER TABLE windlass_lease SET (toast_tuple_target = 8160);
ALTER TABLE windlass_ended SET (toast_tuple_target = 8160);
