# The first process of a host in namespaces: it mounts, moves in, starts sshd, and waits for its input to end. All that it
# mounts is its own and goes with it, as do all processes inside.
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$LAB/disk"
mkdir "$LAB/disk/upper" "$LAB/disk/aside" "$LAB/disk/root"
root="$LAB/disk/root"
mount -t overlay -o "lowerdir=$BASE,upperdir=$LAB/disk/upper,workdir=$LAB/disk/aside" overlay "$root"
mount -t proc proc "$root/proc"
mount --bind "$LAB/inside/meminfo" "$root/proc/meminfo"
mount --bind "$LAB/inside/tainted" "$root/proc/sys/kernel/tainted"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r name major minor <<<"$node"
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/sshd" "$root/lab"
mkdir -m 1777 "$root/run/lock"
mount --bind "$LAB/inside" "$root/lab"
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
rmdir /old
hostname bench-host
exec chroot . /bin/bash -c "
    set -e
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    /usr/sbin/sshd -o ListenAddress=127.0.0.1 -p $PORT
    echo ready
    while read -r _; do :; done
"
