-- Whatever this prints is the same in every run.
CREATE TABLE numbers (n int PRIMARY KEY, square bigint, word text);
INSERT INTO numbers SELECT n, n::bigint * n, md5(n::text) FROM generate_series(1, 100000) n;
SELECT count(*), sum(square), min(word), max(word) FROM numbers;

-- Many small rows, and few large ones.
SELECT * FROM numbers ORDER BY n LIMIT 20000;
SELECT n, repeat(word, 4000) FROM numbers WHERE n IN (1, 2, 3) ORDER BY n;
SELECT md5(string_agg(word, '' ORDER BY n)) FROM numbers;
COPY (SELECT n, word FROM numbers ORDER BY n) TO STDOUT;

-- Data from the client.
CREATE TABLE copied (LIKE numbers);
COPY copied FROM STDIN;
1	1	one
2	4	two
3	9	three
\.
SELECT * FROM copied ORDER BY n;
\copy copied from program 'seq 4 100003 | sed "s/.*/&\t&\tmany/"'
SELECT count(*), sum(n) FROM copied;

-- Errors, and what comes after them.
SELECT 1 / 0;
DROP TABLE IF EXISTS nothing;
BEGIN;
UPDATE numbers SET word = 'changed';
SELECT nonsense FROM numbers;
SELECT 1;
ROLLBACK;
SELECT count(*) FROM numbers WHERE word = 'changed';

-- A cursor, and results without rows.
BEGIN;
DECLARE c CURSOR FOR SELECT n FROM numbers ORDER BY n DESC;
FETCH 3 FROM c;
MOVE 1000 IN c;
FETCH 3 FROM c;
COMMIT;
SELECT n FROM numbers WHERE false;
DELETE FROM numbers WHERE n % 2 = 0;
SELECT count(*) FROM numbers;
DROP TABLE numbers, copied;
