-- Returns the type and message of an error, if its bytes are plain JSON; NULL if a codec encoded
-- them otherwise.
CREATE FUNCTION windlass_error_text(body bytea) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
DECLARE
    error json;
BEGIN
    error := convert_from(body, 'UTF8')::json;
    RETURN ARRAY[error ->> 'type', error ->> 'message'];
EXCEPTION WHEN others THEN
    RETURN NULL;
END
$$;
