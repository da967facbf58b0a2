import org.apache.kafka.common.record.*;
import org.apache.kafka.common.compress.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import java.nio.*; import java.nio.file.*; import java.util.*; import java.nio.charset.StandardCharsets; import java.io.*;
/**
 * Wrote java-*.log, java.records and java-utf8.txt, with kafka-clients 3.9.1:
 * java -cp kafka-clients:lz4-java:snappy-java:zstd-jni:slf4j-api JavaBatches.java DIRECTORY
 * (the five .records were the same; of the 200,000 lines of UTF-8, 60 are those that Python reads otherwise).
 */
public class JavaBatches {
  static String hex(byte[] b){ return b==null?"-":"="+HexFormat.of().formatHex(b); }
  static String hex(ByteBuffer b){ if(b==null) return "-"; byte[] a=new byte[b.remaining()]; b.duplicate().get(a); return hex(a); }
  public static void main(String[] a) throws Exception {
    Path dir=Paths.get(a[0]);
    for (CompressionType t: CompressionType.values()) {
      ByteBuffer out=ByteBuffer.allocate(1<<20); Random r=new Random(3); long off=1000;
      for (int b=0;b<4;b++) {
        MemoryRecordsBuilder mb=new MemoryRecordsBuilder(ByteBuffer.allocate(1<<18), (byte)2, Compression.of(t).build(), b==2?TimestampType.LOG_APPEND_TIME:TimestampType.CREATE_TIME, off, 1700000009999L, b==3?77L:-1L, (short)0, b==3?5:-1, b==3, false, b<2?3:4, 1<<18);
        int n=b==1?1:25; if(b==0) n=400;
        for(int i=0;i<n;i++){
          byte[] k= i%7==0?null: i%7==1?new byte[0]: ("key-"+i).getBytes();
          byte[] v= i%5==0?null: i%5==1?new byte[0]: new byte[i*3%500];
          if(v!=null) for(int j=0;j<v.length;j++) v[j]=(byte)("abcdefgh".charAt(r.nextInt(8)));
          Header[] h= i%3!=0?new Header[0]: new Header[]{ new RecordHeader("h",("x"+i).getBytes()), new RecordHeader("h",null), new RecordHeader("\u00fcn\u00ef\u20ac\ud83d\ude00",new byte[0]) };
          mb.appendWithOffset(off+i*(b==0?1:2), 1700000000000L - i*1000L + (i%2)*5000000L, k, v, h);
        }
        MemoryRecords m=mb.build(); out.put(m.buffer().duplicate()); off+=n*2+7;
      }
      if (t==CompressionType.NONE) {
        out.put(MemoryRecords.withEndTransactionMarker(off, 1700000001111L, 5, 77L,(short)0,new EndTransactionMarker(ControlRecordType.ABORT, 9)).buffer()); off++;
        out.put(MemoryRecords.withEndTransactionMarker(off, 1700000002222L, 5, 78L,(short)0,new EndTransactionMarker(ControlRecordType.COMMIT, 9)).buffer()); off++;
      }
      out.flip(); byte[] bytes=new byte[out.remaining()]; out.duplicate().get(bytes);
      Files.write(dir.resolve("java-"+t.name+".log"), bytes);
      StringBuilder s=new StringBuilder();
      for (RecordBatch rb: MemoryRecords.readableRecords(out).batches()) { rb.ensureValid(); if(rb.isControlBatch()) continue;
        for (org.apache.kafka.common.record.Record rec: rb) {
          s.append(rec.offset()+" "+rec.timestamp()+" "+rb.timestampType().id+" "+hex(rec.key())+" "+hex(rec.value()));
          for(Header h: rec.headers()) s.append(" "+hex(h.key().getBytes(StandardCharsets.UTF_8))+" "+hex(h.value()));
          s.append("\n"); } }
      Files.writeString(dir.resolve("java-"+t.name+".records"), s.toString());
    }
    // utf-8
    StringBuilder u=new StringBuilder(); Random r=new Random(1);
    int[] pool={0x41,0x80,0x8f,0x90,0x9f,0xa0,0xbf,0xc0,0xc2,0xdf,0xe0,0xe2,0xed,0xef,0xf0,0xf4,0xf5,0xff};
    for(int i=0;i<200000;i++){ byte[] x=new byte[1+r.nextInt(6)]; for(int j=0;j<x.length;j++) x[j]=(byte)pool[r.nextInt(pool.length)];
      u.append(HexFormat.of().formatHex(x)+" "+HexFormat.of().formatHex(new String(x,StandardCharsets.UTF_8).getBytes(StandardCharsets.UTF_16BE))+"\n"); }
    Files.writeString(dir.resolve("utf8.txt"),u.toString());
  }
}
