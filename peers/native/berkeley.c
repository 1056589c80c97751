/*
 * Berkeley DB 5.3 in the few calls that the comparison makes of it. Its own interface is made of structures full of
 * pointers to functions; here they become plain functions, and a key is always the eight bytes at `key`.
 *
 * Everything answers 0, or an error of Berkeley DB's.
 */

#include <db.h>
#include <string.h>

/*
 * Many times what 512 transactions of 13 locks need: a full lock table would be an error, not a wait. Locks are
 * dealt out to partitions, and with three times as many as are ever held one of those ran out.
 */
#define MOST 20000
#define MOST_LOCKS 400000
#define CACHE_BYTES (256u << 20)
#define LOG_BUFFER_BYTES (4u << 20)

enum durability { NONE, BUFFERED, SYNC };

static int begin_environment(DB_ENV **env)
{
	int e = db_env_create(env, 0);
	if (e == 0)
		e = (*env)->set_lk_detect(*env, DB_LOCK_DEFAULT);
	if (e == 0)
		e = (*env)->set_lk_max_lockers(*env, MOST);
	if (e == 0)
		e = (*env)->set_lk_max_locks(*env, MOST_LOCKS);
	if (e == 0)
		e = (*env)->set_lk_max_objects(*env, MOST_LOCKS);
	return e;
}

static int open_table(DB_ENV *env, DB **db)
{
	int e = db_create(db, env, 0);
	if (e == 0)
		e = (*db)->open(*db, NULL, "rows.db", NULL, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0600);
	return e;
}

/* On failure what was opened so far stays open: the process ends then. */
int peers_berkeley_open(const char *home, int durability, DB_ENV **env, DB **db)
{
	int e = begin_environment(env);
	if (e == 0)
		e = (*env)->set_cachesize(*env, 0, CACHE_BYTES, 1);
	if (e == 0)
		e = (*env)->set_lg_bsize(*env, LOG_BUFFER_BYTES);
	if (e == 0)
		e = (*env)->set_lg_max(*env, 16 * LOG_BUFFER_BYTES);
	if (e == 0)
		e = (*env)->set_tx_max(*env, MOST);
	if (e == 0 && durability == NONE)
		e = (*env)->set_flags(*env, DB_TXN_NOSYNC, 1);
	if (e == 0 && durability == BUFFERED)
		e = (*env)->set_flags(*env, DB_TXN_WRITE_NOSYNC, 1);
	if (e == 0)
		e = (*env)->open(*env, home, DB_CREATE | DB_PRIVATE | DB_THREAD | DB_INIT_MPOOL | DB_INIT_LOCK |
		    DB_INIT_LOG | DB_INIT_TXN, 0600);
	if (e == 0)
		e = open_table(*env, db);
	return e;
}

int peers_berkeley_close(DB_ENV *env, DB *db)
{
	int first = db == NULL ? 0 : db->close(db, DB_NOSYNC);
	int second = env->close(env, 0);
	return first != 0 ? first : second;
}

int peers_berkeley_begin(DB_ENV *env, DB_TXN **txn)
{
	return env->txn_begin(env, NULL, txn, 0);
}

int peers_berkeley_commit(DB_TXN *txn)
{
	return txn->commit(txn, 0);
}

int peers_berkeley_abort(DB_TXN *txn)
{
	return txn->abort(txn);
}

/* `txn` may be NULL: then the read is a transaction of its own. */
int peers_berkeley_get(DB *db, DB_TXN *txn, const void *key, void *value, u_int32_t size, int for_update)
{
	DBT k, v;
	memset(&k, 0, sizeof k);
	memset(&v, 0, sizeof v);
	k.data = (void *)key;
	k.size = 8;
	v.data = value;
	v.ulen = size;
	v.flags = DB_DBT_USERMEM;
	return db->get(db, txn, &k, &v, for_update ? DB_RMW : 0);
}

int peers_berkeley_put(DB *db, DB_TXN *txn, const void *key, const void *value, u_int32_t size)
{
	DBT k, v;
	memset(&k, 0, sizeof k);
	memset(&v, 0, sizeof v);
	k.data = (void *)key;
	k.size = 8;
	v.data = (void *)value;
	v.size = size;
	return db->put(db, txn, &k, &v, 0);
}

/* The lock subsystem alone. */
int peers_berkeley_locks_open(const char *home, DB_ENV **env)
{
	int e = begin_environment(env);
	if (e == 0)
		e = (*env)->open(*env, home, DB_CREATE | DB_PRIVATE | DB_THREAD | DB_INIT_LOCK, 0600);
	return e;
}

int peers_berkeley_locker(DB_ENV *env, u_int32_t *locker)
{
	return env->lock_id(env, locker);
}

int peers_berkeley_locker_free(DB_ENV *env, u_int32_t locker)
{
	return env->lock_id_free(env, locker);
}

int peers_berkeley_lock(DB_ENV *env, u_int32_t locker, const void *key, int exclusive, int intention)
{
	static const db_lockmode_t modes[2][2] = {{DB_LOCK_READ, DB_LOCK_IREAD}, {DB_LOCK_WRITE, DB_LOCK_IWRITE}};
	DB_LOCK lock;
	DBT name;
	memset(&name, 0, sizeof name);
	name.data = (void *)key;
	name.size = 8;
	return env->lock_get(env, locker, 0, &name, modes[exclusive][intention], &lock);
}

int peers_berkeley_release(DB_ENV *env, u_int32_t locker)
{
	DB_LOCKREQ all;
	memset(&all, 0, sizeof all);
	all.op = DB_LOCK_PUT_ALL;
	return env->lock_vec(env, locker, 0, &all, 1, NULL);
}

/* 1 if the transaction had to give way and may run again. */
int peers_berkeley_gave_way(int error)
{
	return error == DB_LOCK_DEADLOCK || error == DB_LOCK_NOTGRANTED;
}

const char *peers_berkeley_message(int error)
{
	return db_strerror(error);
}

const char *peers_berkeley_version(void)
{
	return db_version(NULL, NULL, NULL);
}
