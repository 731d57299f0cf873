-- What an event about a card says of it for programs, JSON: {"gpu":3,"by":"ann"};
-- without gpu it is about all cards. NULL: the event is not about a card.
ALTER TABLE events ADD COLUMN card TEXT;
UPDATE events SET card = json_object('gpu', CAST(substr(text, 4) AS INTEGER)) WHERE kind = 'card' AND text GLOB 'gpu[0-9]*';
UPDATE events SET card = '{}' WHERE kind = 'card' AND card IS NULL;
