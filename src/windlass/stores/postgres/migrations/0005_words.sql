-- What an error says in the clear: its type and message, if its bytes are plain JSON. Whatever else a
-- codec made of it says nothing here.
CREATE FUNCTION windlass_words(body bytea) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
DECLARE
    said json;
BEGIN
    said := convert_from(body, 'UTF8')::json;
    RETURN ARRAY[said ->> 'type', said ->> 'message'];
EXCEPTION WHEN others THEN
    RETURN NULL;
END
$$;
